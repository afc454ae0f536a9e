-- Finds out whether our user of the server may run every command that scripts run which move jobs: one that is refused
-- in the middle, with jobs in its hands, would leave them where nobody finds them. Nothing is written.
-- KEYS[1]  wait:high     (list)  asked about
-- KEYS[2]  wait          (list)  asked about
-- KEYS[3]  wait:low      (list)  asked about
-- KEYS[4]  active        (set)  asked about
-- KEYS[5]  candidates    (set)  asked about
-- KEYS[6]  delayed       (zset)  asked about
-- KEYS[7]  completed     (zset)  asked about
-- KEYS[8]  failed        (zset)  asked about
-- KEYS[9]  cancelled     (zset)  asked about
-- KEYS[10] wake          (zset)  asked about
-- KEYS[11] locks         (hash)  asked about
-- KEYS[12] cancelling    (hash)  asked about
-- KEYS[13] payload       (hash)  asked about
-- KEYS[14] attempt       (hash)  asked about
-- KEYS[15] stalledCount  (hash)  asked about
-- KEYS[16] result        (hash)  asked about
-- KEYS[17] error         (hash)  asked about
-- KEYS[18] options       (hash)  asked about
-- KEYS[19] maxCount      (hash)  asked about
-- KEYS[20] priority      (hash)  asked about
-- KEYS[21] dispatchedAt  (hash)  asked about
-- KEYS[22] deferred      (hash)  asked about
-- KEYS[23] waitingSince  (hash)  asked about
-- KEYS[24] recovery      (hash)  asked about
-- KEYS[25] expiresAt     (hash)  asked about
-- KEYS[26] expires       (zset)  asked about
-- KEYS[27] ghosts        (hash)  asked about
-- KEYS[28] calls         (hash)  asked about
-- KEYS[29] meta          (hash)  asked about
-- KEYS[30] events        (stream)  asked about
-- KEYS[31] stalls        (stream)  asked about
-- KEYS[32] claimed       (hash)  asked about
-- KEYS[33] checkpoint    (hash)  asked about
-- KEYS[34] progress      (hash)  asked about
-- KEYS[35] outcome       (hash)  asked about
-- KEYS[36] finalizing    (zset)  asked about
-- KEYS[37] aside         (hash)  asked about
-- KEYS[38] outbox        (zset)  asked about
-- Returns  {'rights', command and key of each that is missing}: none where the server cannot tell, before Redis 7.0
-- Emits    nothing
-- Refuses  nothing
if not redis.acl_check_cmd then return { 'rights' } end
local kinds = {
  { keys = { wait_high, wait, wait_low },
    calls = { { 'LPUSH', 'x' }, { 'RPUSH', 'x' }, { 'LTRIM', 0, -1 }, { 'LLEN' }, { 'LINDEX', 0 }, { 'LRANGE', 0, -1 },
      { 'EXISTS' } } },
  { keys = { active, candidates },
    calls = { { 'SADD', 'x' }, { 'SREM', 'x' }, { 'RENAME', active }, { 'SCARD' }, { 'SMISMEMBER', 'x' },
      { 'EXISTS' } } },
  { keys = { delayed, completed, failed, cancelled, finalizing, expires, wake, outbox },
    calls = { { 'ZADD', 0, 'x' }, { 'ZREM', 'x' }, { 'ZCARD' }, { 'ZMSCORE', 'x' }, { 'ZRANGE', 0, 0 },
      { 'ZRANGEBYSCORE', 0, 0 },
      { 'EXISTS' } } },
  { keys = { locks, cancelling, payload, attempt, stalled_count, result, errors, options, max_count, priority,
      dispatched_at, deferred, waiting_since, recovery, expires_at, ghosts, calls, meta, claimed, checkpoint,
      progress, outcome, aside },
    calls = { { 'HSET', 'x', 'x' }, { 'HDEL', 'x' }, { 'HINCRBY', 'x', 1 }, { 'HGET', 'x' }, { 'HMGET', 'x' },
      { 'HEXISTS', 'x' }, { 'HLEN' }, { 'HSTRLEN', 'x' }, { 'EXISTS' } } },
  { keys = { events, stalls }, calls = { { 'XADD', '*', 'x', 'x' }, { 'XTRIM', 'MAXLEN', 1 }, { 'EXISTS' } } },
}
local reply = { 'rights' }
for _, kind in ipairs(kinds) do
  for _, key in ipairs(kind.keys) do
    for _, call in ipairs(kind.calls) do
      if not redis.acl_check_cmd(call[1], key, unpack(call, 2)) then
        reply[#reply + 1] = call[1]
        reply[#reply + 1] = key
      end
    end
  end
end
return reply
