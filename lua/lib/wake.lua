-- Wakes an idle worker; by pcall, since a marker that cannot be written must not undo what it is for.
local function ring_wake(wake)
  redis.pcall('ZADD', wake, 0, 'marker')
end
