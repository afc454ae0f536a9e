-- Notes when an audit of the task came to its end, and what it found; nothing where nothing is kept of the task.
-- KEYS[1]  meta   (hash)  when, and what
-- ARGV[1]  found  (kinds of fault, each with how often; '': none)
-- Returns  {'noted'}; or {'unknown'}: nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local found = ARGV[1]

if redis.call('HLEN', meta) == 0 then return { 'unknown' } end
-- A shrinking command first: behind it a server at maxmemory takes the other.
redis.call('HDEL', meta, '')
redis.call('HSET', meta, 'auditedAt', string.format('%d', now_us() / 1000), 'auditFound', found)
return { 'noted' }
