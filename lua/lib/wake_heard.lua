-- Wakes an idle worker of a cluster, where workers do not block but subscribe to the channel named like the key. A
-- marker that already exists was published before: a worker that becomes idle looks for one first. There is no spare.
local function ring_wake(wake, leaves_none)
  if not leaves_none and redis.pcall('ZADD', wake, 0, 'marker') == 1 then redis.pcall('SPUBLISH', wake, 'w') end
end
