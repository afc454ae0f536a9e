-- Wakes an idle worker; by pcall, since a marker that cannot be written must not undo the transition. The blocking call
-- of a frozen worker may still take a marker, so each has a spare: another idle worker takes it, and looks a bit later.
local function ring_wake(wake)
  -- While no worker is idle, both are there. Reading that costs less than writing them again.
  if redis.pcall('ZCARD', wake) ~= 2 then redis.pcall('ZADD', wake, '0', 'marker', '1', 'spare') end
end

-- The same for a claim, if it leaves jobs. If it leaves none, no other worker needs to look: the spare is removed.
local function ring_or_rest(wake, leaves, claims)
  if leaves then ring_wake(wake) elseif claims then redis.pcall('ZREM', wake, 'spare') end
end
