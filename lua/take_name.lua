-- Takes an exclusive name for a worker. If two take it at once, the later one wins.
-- Uses     now shrink_first
-- KEYS[1]  name    (zset)  worker ids by when they took the name, ms, raised to keep the order
-- ARGV[1]  worker  (id of the caller)
-- Returns  {'taken', ids that had it before}: the caller resolves their jobs, then removes these ids
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local worker = ARGV[1]
local last = redis.call('ZRANGE', name, -1, -1, 'WITHSCORES')
local _, now_ms = now_us()
local mine = math.max(now_ms, (tonumber(last[2]) or 0) + 1)
-- A repeated start, after a lost reply, keeps its time.
local before = tonumber(redis.call('ZSCORE', name, worker) or mine)
shrink_first('ZREM', name)
redis.call('ZADD', name, string.format('%d', before), worker)
return { 'taken', unpack(redis.call('ZRANGEBYSCORE', name, '-inf', '(' .. string.format('%d', before))) }
