-- Takes workflows that nobody has looked after for some time.
-- KEYS[1]  flows  (zset)  workflows by when somebody looked after them last, ms
-- ARGV[1]  pause  (ms)
-- ARGV[2]  limit  (how many)
-- Returns  {'taken', names}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local _, now_ms = now_us()
local due = redis.call('ZRANGEBYSCORE', flows, '-inf', string.format('%d', now_ms - ARGV[1]), 'LIMIT', 0, ARGV[2])
-- Of a server whose clock went back.
local ahead = redis.call('ZRANGEBYSCORE', flows, string.format('(%d', now_ms + 60000), '+inf', 'LIMIT', 0, ARGV[2])
for _, name in ipairs(ahead) do due[#due + 1] = name end
local reply = { 'taken' }
-- A shrinking command first: behind it a server at maxmemory takes the others.
redis.call('ZREM', flows, '')
for _, name in ipairs(due) do
  redis.call('ZADD', flows, string.format('%d', now_ms), name)
  reply[#reply + 1] = name
end
return reply
