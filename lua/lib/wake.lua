-- Wakes an idle worker; by pcall, since a marker that cannot be written must not undo the transition. The blocking call
-- of a frozen worker may still take a marker, so each has a spare: another idle worker takes it, and looks a bit later.
-- If a call leaves nothing to claim (`leaves_none`), no other worker needs to look: the spare is removed.
local function ring_wake(wake, leaves_none)
  if leaves_none then
    redis.pcall('ZREM', wake, 'spare')
  elseif redis.pcall('ZCARD', wake) ~= 2 then
    -- While no worker is idle, both are there, and reading that costs less than writing them again.
    redis.pcall('ZADD', wake, '0', 'marker', '1', 'spare')
  end
end
