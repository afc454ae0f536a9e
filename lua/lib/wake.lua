-- Wakes an idle worker; by pcall, since a marker that cannot be written must not undo the transition. The blocking call
-- of a frozen worker may still take a marker, so each has a spare: another idle worker takes it, and looks a bit later.
-- After a claim that leaves no job (`leaves_none`) no other worker needs to look: the spare is removed.
local function ring_wake(wake, leaves_none)
  if leaves_none then
    redis.pcall('ZREM', wake, 'spare')
  -- While no worker is idle, both are there. Reading that costs less than writing them again.
  elseif redis.pcall('ZCARD', wake) ~= 2 then
    redis.pcall('ZADD', wake, '0', 'marker', '1', 'spare')
  end
end
