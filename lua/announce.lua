-- Writes what a worker says of itself, also on a server at maxmemory.
-- KEYS[1]  worker  (hash)  presence of the worker
-- ARGV[1]  fields  (pairs: name, value)
-- Returns  {'announced'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- A shrinking command first: behind it a server at maxmemory takes the other.
redis.call('HDEL', worker, '')
redis.call('HSET', worker, 'lastSeenAt', string.format('%d', now_us() / 1000), unpack(ARGV))
return { 'announced' }
