-- Finds out whether our user of the server may run every command that writes: a script that is refused in the middle, with
-- jobs in its hands, would leave them where nobody finds them. Nothing is written.
-- KEYS[1]  wait:high     (list)
-- KEYS[2]  wait          (list)
-- KEYS[3]  wait:low      (list)
-- KEYS[4]  active        (set)
-- KEYS[5]  candidates    (set)
-- KEYS[6]  delayed       (zset)
-- KEYS[7]  completed     (zset)
-- KEYS[8]  failed        (zset)
-- KEYS[9]  cancelled     (zset)
-- KEYS[10] wake          (zset)
-- KEYS[11] locks         (hash)
-- KEYS[12] cancelling    (hash)
-- KEYS[13] payload       (hash)
-- KEYS[14] attempt       (hash)
-- KEYS[15] stalledCount  (hash)
-- KEYS[16] result        (hash)
-- KEYS[17] error         (hash)
-- KEYS[18] options       (hash)
-- KEYS[19] maxCount      (hash)
-- KEYS[20] priority      (hash)
-- KEYS[21] dispatchedAt  (hash)
-- KEYS[22] calls         (hash)
-- KEYS[23] meta          (hash)
-- Returns  {'rights', command and key of each that is missing}: none where the server cannot tell, before Redis 7.0
-- Refuses  nothing
if not redis.acl_check_cmd then return { 'rights' } end
local writes = {
  list = { { 'LPUSH', 'x' }, { 'RPUSH', 'x' }, { 'LREM', 0, 'x' }, { 'LTRIM', 0, -1 } },
  set = { { 'SADD', 'x' }, { 'SREM', 'x' }, { 'RENAME', KEYS[4] } },
  zset = { { 'ZADD', 0, 'x' }, { 'ZREM', 'x' } },
  hash = { { 'HSET', 'x', 'x' }, { 'HSETNX', 'x', 'x' }, { 'HDEL', 'x' }, { 'HINCRBY', 'x', 1 } },
}
local reply = { 'rights' }
for at, key in ipairs(KEYS) do
  local kind = at <= 3 and 'list' or at <= 5 and 'set' or at <= 10 and 'zset' or 'hash'
  for _, write in ipairs(writes[kind]) do
    if not redis.acl_check_cmd(write[1], key, unpack(write, 2)) then
      reply[#reply + 1] = write[1]
      reply[#reply + 1] = key
    end
  end
end
return reply
