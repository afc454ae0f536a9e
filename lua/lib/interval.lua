-- Applies the interval that a worker asks for. A larger ask raises the interval in force at once; the next epoch takes
-- the largest ask of this one. Also records who asked. Returns the interval in force. The caller must have written
-- before, so that a server at maxmemory accepts these fields.
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
