-- Removes instances of a workflow that ended long ago, with all that is kept of them, and shapes that none has any
-- more.
-- KEYS[1]  place     (zset)  instances by when they ended, ms
-- KEYS[2]  head      (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[3]  nodes     (hash)  instance/node -> its state
-- KEYS[4]  input     (hash)  instance/node -> payload
-- KEYS[5]  value     (hash)  instance/node -> value, or failure
-- KEYS[6]  output    (hash)  instance -> what it answers
-- KEYS[7]  error     (hash)  instance -> why it ended so
-- KEYS[8]  stopping  (hash)  instance -> how it is to end, and why
-- KEYS[9]  shapes    (hash)  records of graphs
-- ARGV[1]  age       (ms: nothing younger is removed)
-- ARGV[2]  count     (how many are kept at the most, '-': any number)
-- ARGV[3]  least     (ms: nothing younger is removed for being too many)
-- Returns  {'trimmed', how many, 1 when others are to follow, else 0}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local age, most, least = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
expect_types({}, {}, { head, nodes, input, value, output, errors, stopping, shapes }, { place })
local _, now_ms = now_us()
local excess = most and redis.call('ZCARD', place) - most or 0
local oldest = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('%d', now_ms - least), 'WITHSCORES', 'LIMIT', 0,
  100)
local gone, budget, more = 0, 500, 0
for at = 1, #oldest, 2 do
  local flow = oldest[at]
  if tonumber(oldest[at + 1]) > now_ms - age and gone >= excess then break end
  local digest = string.match(redis.call('HGET', head, flow) or '', '^%d+ %d+ %d+ %d+ (%S+) %S+$')
  local count = digest and tonumber(string.match(redis.call('HGET', shapes, digest .. '@') or '', '^%d+')) or 0
  -- No graph has more: another number is none that a start has written.
  if count > 500 then count = 0 end
  if count > budget and gone > 0 then
    more = 1
    break
  end
  budget, gone = budget - count, gone + 1
  redis.call('ZREM', place, flow)
  local fields, records = {}, { digest, digest and digest .. '@', digest and digest .. '#' }
  for index = 0, count - 1 do
    fields[index + 1], records[#records + 1] = node_of(flow, index), digest .. '/' .. index
  end
  for _, key in ipairs(#fields > 0 and { nodes, input, value } or {}) do redis.call('HDEL', key, unpack(fields)) end
  for _, key in ipairs({ output, errors, stopping, head }) do redis.call('HDEL', key, flow) end
  -- Where nobody knows how many have the shape, it stays.
  local users = digest and tonumber(string.match(redis.call('HGET', shapes, digest .. '#') or '', '^%d+$'))
  if users and users > 1 then
    redis.call('HSET', shapes, digest .. '#', string.format('%d', users - 1))
  elseif users then
    redis.call('HDEL', shapes, unpack(records))
  end
end
return { 'trimmed', gone, (more == 1 or gone >= 100) and 1 or 0 }
