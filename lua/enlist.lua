-- Records that a name was seen now, also on a server at maxmemory.
-- Uses     now shrink_first
-- KEYS[1]  seen  (zset)  names of workers or of tasks, by time last seen, ms
-- ARGV[1]  name  (of a worker or a task)
-- Returns  {'enlisted'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
shrink_first('ZREM', seen)
redis.call('ZADD', seen, string.format('%d', now_us() / 1000), ARGV[1])
return { 'enlisted' }
