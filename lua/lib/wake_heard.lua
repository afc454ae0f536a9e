-- Wakes an idle worker of a cluster, where nobody blocks: who listens on the channel of the marker's name takes it. A
-- marker that was there before was told then: who goes idle looks for one first.
local function ring_wake(wake)
  if redis.pcall('ZADD', wake, 0, 'marker') == 1 then redis.pcall('SPUBLISH', wake, 'w') end
end

-- The same by a claim, where it leaves jobs.
local function ring_or_rest(wake, leaves)
  if leaves then ring_wake(wake) end
end
