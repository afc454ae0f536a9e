-- Puts a worker's own interval before the task: a larger ask raises the interval in force at once, and the
-- next epoch takes the largest ask of this one. Who asked is written beside it. Returns the interval in force. The
-- caller has written before, so that a server at maxmemory lets these fields grow.
local function ask_interval(meta, interval, asked, ask, worker)
  interval, asked = tonumber(interval) or 0, tonumber(asked) or 0
  if ask > interval then
    interval = ask
    redis.call('HSET', meta, 'interval', ask, 'asker', worker, 'ask', ask, 'askedBy', worker)
  elseif ask > asked then
    redis.call('HSET', meta, 'ask', ask, 'askedBy', worker)
  end
  return interval
end
