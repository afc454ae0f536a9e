-- Takes an exclusive name for a worker. Of two that take it at once the later one goes before.
-- KEYS[1]  name    (zset)  worker ids by when they took the name, ms or more
-- ARGV[1]  worker  (id of the caller)
-- Returns  {'taken', ids that had it before: their jobs are to be resolved, then they are to be removed}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local worker = ARGV[1]
local last = redis.call('ZRANGE', name, -1, -1, 'WITHSCORES')
local _, now_ms = now_us()
local mine = math.max(now_ms, (tonumber(last[2]) or 0) + 1)
-- A start that is made again, since an answer was lost.
local before = tonumber(redis.call('ZSCORE', name, worker) or mine)
-- A shrinking command first: behind it a server at maxmemory takes the other.
redis.call('ZREM', name, '')
redis.call('ZADD', name, string.format('%d', before), worker)
return { 'taken', unpack(redis.call('ZRANGEBYSCORE', name, '-inf', '(' .. string.format('%d', before))) }
