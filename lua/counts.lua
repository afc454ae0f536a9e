-- Counts the jobs of a task in each place, in one step. Changes nothing; not a transaction, which a server at maxmemory
-- refuses whatever is in it.
-- KEYS[1]  wait:high (list)  ids
-- KEYS[2]  wait      (list)  ids
-- KEYS[3]  wait:low  (list)  ids
-- KEYS[4]  delayed   (zset)  ids by due time, ms
-- KEYS[5]  locks     (hash)  id -> token
-- KEYS[6]  completed (zset)  ids by finish time, ms
-- KEYS[7]  failed    (zset)  ids by finish time, ms
-- KEYS[8]  cancelled (zset)  ids by finish time, ms
-- Returns  {'counted', waiting, delayed, running, completed, failed, cancelled}
-- Emits    nothing
-- Refuses  WRONGTYPE
local waiting = redis.call('LLEN', wait_high) + redis.call('LLEN', wait) + redis.call('LLEN', wait_low)
return { 'counted', waiting, redis.call('ZCARD', delayed), redis.call('HLEN', locks),
  redis.call('ZCARD', completed), redis.call('ZCARD', failed), redis.call('ZCARD', cancelled) }
