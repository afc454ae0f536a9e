-- Wakes an idle worker of a cluster, where workers do not block but subscribe to the channel named like the key. A
-- marker that already exists was published before: a worker that becomes idle looks for one first.
local function ring_wake(wake)
  if redis.pcall('ZADD', wake, 0, 'marker') == 1 then redis.pcall('SPUBLISH', wake, 'w') end
end

-- The same for a claim, if it leaves jobs.
local function ring_or_rest(wake, leaves)
  if leaves then ring_wake(wake) end
end
