-- Puts a name among those that were seen, also on a server at maxmemory.
-- KEYS[1]  seen  (zset)  names by when they were seen last, ms: of workers, or of tasks
-- ARGV[1]  name  (of a worker or a task)
-- Returns  {'enlisted'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- A shrinking command first: behind it a server at maxmemory takes the other.
redis.call('ZREM', seen, '')
redis.call('ZADD', seen, string.format('%d', now_us() / 1000), ARGV[1])
return { 'enlisted' }
