-- A key may have settings of its own, written at run time. `laneOwn` has six words for each such key: how many of its
-- jobs may run, how many may start within how many us (the first of these three is '-' if the limits of the task hold),
-- its weight, since when it is paused, ms (0: it is not), and by whom.

-- Reads the settings of keys, by key. Every other of the words is a key.
local function own_settings(lane_own, words)
  local keys, own = {}, {}
  if #words == 0 or redis.call('EXISTS', lane_own) == 0 then return own end
  for at = 1, #words, 2 do keys[#keys + 1] = words[at] end
  for at, stored in ipairs(redis.call('HMGET', lane_own, unpack(keys))) do
    local limits, weight, paused, by = string.match(stored or '', '^(%S+ %S+ %S+) (%d+) (%d+) (.*)$')
    local most, rate, window = string.match(limits or '', '^(%d+) (%d+) (%d+)$')
    local has_limits = most and (tonumber(rate) == 0 or tonumber(window) > 0)
    own[keys[at]] = limits and { most = has_limits and most, rate = rate, window = window,
      weight = math.min(100, math.max(1, tonumber(weight))), paused = paused ~= '0' and paused or nil, by = by }
  end
  return own
end
