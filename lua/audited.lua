-- Records when an audit of the task finished, and what it found. Writes nothing if the task has no data.
-- Uses     now shrink_first
-- KEYS[1]  meta   (hash)  time and result of the last audit
-- ARGV[1]  found  (kinds of fault, each with its number; '': none)
-- Returns  {'noted'}; or {'unknown'}: nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
if redis.call('HLEN', meta) == 0 then return { 'unknown' } end
shrink_first('HDEL', meta)
redis.call('HSET', meta, 'auditedAt', string.format('%d', now_us() / 1000), 'auditFound', ARGV[1])
return { 'noted' }
