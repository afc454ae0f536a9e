-- Takes workflows that no worker has visited for some time, and marks them as visited.
-- Uses     now shrink_first
-- KEYS[1]  workflows  (zset)  workflows by time of the last visit, ms
-- ARGV[1]  pause  (ms since the last visit)
-- ARGV[2]  limit  (workflows per call)
-- Returns  {'taken', names}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local _, now_ms = now_us()
local due = redis.call('ZRANGEBYSCORE', workflows, '-inf', string.format('%d', now_ms - ARGV[1]), 'LIMIT', 0, ARGV[2])
-- Also entries over a minute ahead: the server's clock went back.
local ahead = redis.call('ZRANGEBYSCORE', workflows, string.format('(%d', now_ms + 60000), '+inf', 'LIMIT', 0, ARGV[2])
for _, name in ipairs(ahead) do due[#due + 1] = name end
local reply = { 'taken' }
shrink_first('ZREM', workflows)
for _, name in ipairs(due) do
  redis.call('ZADD', workflows, string.format('%d', now_ms), name)
  reply[#reply + 1] = name
end
return reply
