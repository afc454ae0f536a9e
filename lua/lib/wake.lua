-- Wakes an idle worker; by pcall, since a marker that cannot be written must not undo what it is for. A frozen worker
-- takes a marker too, by the block that it began before. So each marker comes with a spare: another idle worker takes
-- that one, and looks a moment later.
local function ring_wake(wake)
  redis.pcall('ZADD', wake, 0, 'marker', 1, 'spare')
end

-- The same by a claim, if it leaves jobs. If it leaves none, no other worker needs to look.
local function ring_or_rest(wake, leaves, claims)
  if leaves then ring_wake(wake) elseif claims then redis.pcall('ZREM', wake, 'spare') end
end
