-- Puts a worker among those that were seen, also on a server at maxmemory.
-- KEYS[1]  workers  (zset)  worker ids by when they were seen last, ms
-- ARGV[1]  worker   (id)
-- Returns  {'enlisted'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- A shrinking command first: behind it a server at maxmemory takes the other.
redis.call('ZREM', workers, '')
redis.call('ZADD', workers, string.format('%d', now_us() / 1000), ARGV[1])
return { 'enlisted' }
