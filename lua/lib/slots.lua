-- After jobs were let go: if max_running jobs ran, one more may run now, so an idle worker looks.
local function free_slots(meta, wake)
  if redis.pcall('HGET', meta, 'full') ~= 'running' then return end
  redis.pcall('HDEL', meta, 'full')
  ring_wake(wake)
end
