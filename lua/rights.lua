-- Checks whether our user may run every command of the scripts that move jobs. A script that is refused in the middle
-- would leave jobs in no place. Nothing is written.
-- KEYS[1]  wait:high     (list)  checked
-- KEYS[2]  wait          (list)  checked
-- KEYS[3]  wait:low      (list)  checked
-- KEYS[4]  active        (set)  checked
-- KEYS[5]  candidates    (set)  checked
-- KEYS[6]  delayed       (zset)  checked
-- KEYS[7]  completed     (zset)  checked
-- KEYS[8]  failed        (zset)  checked
-- KEYS[9]  cancelled     (zset)  checked
-- KEYS[10] wake          (zset)  checked
-- KEYS[11] locks         (hash)  checked
-- KEYS[12] cancelling    (hash)  checked
-- KEYS[13] payload       (hash)  checked
-- KEYS[14] attempt       (hash)  checked
-- KEYS[15] stalledCount  (hash)  checked
-- KEYS[16] result        (hash)  checked
-- KEYS[17] error         (hash)  checked
-- KEYS[18] options       (hash)  checked
-- KEYS[19] maxCount      (hash)  checked
-- KEYS[20] priority      (hash)  checked
-- KEYS[21] dispatchedAt  (hash)  checked
-- KEYS[22] snoozes       (hash)  checked
-- KEYS[23] enqueuedAt    (hash)  checked
-- KEYS[24] recovery      (hash)  checked
-- KEYS[25] expiresAt     (hash)  checked
-- KEYS[26] expires       (zset)  checked
-- KEYS[27] tombstones    (hash)  checked
-- KEYS[28] replies       (hash)  checked
-- KEYS[29] meta          (hash)  checked
-- KEYS[30] events        (stream)  checked
-- KEYS[31] stalls        (stream)  checked
-- KEYS[32] claimed       (hash)  checked
-- KEYS[33] checkpoint    (hash)  checked
-- KEYS[34] progress      (hash)  checked
-- KEYS[35] outcome       (hash)  checked
-- KEYS[36] finalizing    (zset)  checked
-- KEYS[37] parked        (hash)  checked
-- KEYS[38] outbox        (zset)  checked
-- KEYS[39] early         (hash)  checked
-- KEYS[40] lanes         (zset)  checked
-- KEYS[41] laneOf        (hash)  checked
-- KEYS[42] turns         (zset)  checked
-- KEYS[43] laneHeld      (zset)  checked
-- KEYS[44] laneStarts    (hash)  checked
-- KEYS[45] laneOwn       (hash)  checked
-- KEYS[46] series        (hash)  checked
-- Returns  {'rights', command and key of each permission that is missing}: none before Redis 7.0, which cannot tell
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
      { 'ZRANGEBYSCORE', 0, 0 }, { 'EXISTS' } } },
  { keys = { locks, cancelling, payload, attempt, stalled_count, result, errors, options, max_count, priority,
      dispatched_at, snoozes, enqueued_at, recovery, expires_at, tombstones, replies, meta, claimed, early,
      checkpoint, progress, outcome, parked, lane_of, lane_starts, lane_own, series },
    calls = { { 'HSET', 'x', 'x' }, { 'HDEL', 'x' }, { 'HINCRBY', 'x', 1 }, { 'HGET', 'x' }, { 'HMGET', 'x' },
      { 'HEXISTS', 'x' }, { 'HLEN' }, { 'HSTRLEN', 'x' }, { 'EXISTS' } } },
  { keys = { lanes, turns, lane_held },
    calls = { { 'ZADD', 0, 'x' }, { 'ZREM', 'x' }, { 'ZCARD' }, { 'ZCOUNT', 0, 0 }, { 'ZMSCORE', 'x' },
      { 'ZRANGE', 0, 0 }, { 'ZRANGEBYSCORE', 0, 0 }, { 'EXISTS' } } },
  { keys = { events, stalls }, calls = { { 'XADD', '*', 'x', 'x' }, { 'XTRIM', 'MAXLEN', 1 }, { 'EXISTS' } } },
}
local reply = { 'rights' }
for _, kind in ipairs(kinds) do
  for _, key in ipairs(kind.keys) do
    for _, call in ipairs(kind.calls) do
      local may = redis.acl_check_cmd(call[1], key, unpack(call, 2))
      if not may then reply[#reply + 1], reply[#reply + 2] = call[1], key end
    end
  end
end
return reply
