-- Server time in microseconds, and in whole milliseconds. A double holds it exactly until the year 2255.
local function now_us()
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  return now, math.floor(now / 1000)
end
