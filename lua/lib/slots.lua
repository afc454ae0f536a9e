-- After jobs were let go: if a limit was reached, one more job may run now, so an idle worker looks.
local function free_slots(places, ids)
  local was_full = redis.pcall('HGET', places.meta, 'full') == 'running'
  if was_full then redis.pcall('HDEL', places.meta, 'full') end
  if leave_lanes(places, ids) or was_full then ring_wake(places.wake) end
end
