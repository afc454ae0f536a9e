-- Removes instances of a workflow that ended long ago, with all their data and children, and shapes without users.
-- Uses     now shrink_first types book flow flow_remove
-- KEYS[1]  place      (zset)  instances by end time, ms
-- KEYS[2]  instances  (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[3]  nodes      (hash)  instance/node -> its state
-- KEYS[4]  input      (hash)  instance/node -> payload
-- KEYS[5]  value      (hash)  instance/node -> value, or failure
-- KEYS[6]  output     (hash)  instance -> its output
-- KEYS[7]  error      (hash)  instance -> why it ended
-- KEYS[8]  stopping   (hash)  instance -> how it will end, and why
-- KEYS[9]  shapes     (hash)  graphs, by digest
-- KEYS[10] grow       (hash)  instance/node -> graph that its job returned
-- KEYS[11] cursor     (hash)  't ' and instance -> what is left to remove
-- KEYS[12] children   (zset)  instances that run as nodes of others, all with the score 0
-- KEYS[13] deadlines  (zset)  instances by deadline, ms
-- KEYS[14] headers    (hash)  instance -> its headers, JSON
-- ARGV[1]  age        (ms: instances that ended longer ago are removed)
-- ARGV[2]  count      (how many to keep at most, '-': no limit)
-- ARGV[3]  least      (ms: younger instances stay even above that number)
-- Returns  {'trimmed', how many, 1 if others remain else 0}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local age, most, least = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
expect_types({}, {}, { instances, nodes, input, value, output, errors, stopping, shapes, grow, cursor, headers },
  { place, children, deadlines })
local _, now_ms = now_us()
local excess = most and redis.call('ZCARD', place) - most or 0
local oldest = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('%d', now_ms - least), 'WITHSCORES', 'LIMIT', 0,
  100)
local gone, budget, more = 0, 500, 0
if #oldest > 0 then shrink_first('HDEL', cursor) end

-- Removes one instance; returns false if some of it is left.
local function remove(flow)
  local digest = string.match(redis.call('HGET', instances, flow) or '', '^%d+ %d+ %d+ %d+ (%S+) %S+')
  local count = digest and count_of_nodes(redis.call('HGET', shapes, digest .. '@')) or 0
  local is_gone
  budget, is_gone = remove_instance(keys, flow, digest, count, budget)
  if not is_gone then
    -- A partly removed instance cannot be retried.
    redis.call('HSET', stopping, flow, 'removed ')
    return false
  end
  for _, key in ipairs({ output, errors, headers, stopping, instances }) do redis.call('HDEL', key, flow) end
  redis.call('ZREM', children, flow)
  redis.call('ZREM', deadlines, flow)
  return true
end

for at = 1, #oldest, 2 do
  local flow = oldest[at]
  if tonumber(oldest[at + 1]) > now_ms - age and gone >= excess then break end
  local of_it = redis.call('ZRANGE', children, '[' .. flow .. '/', '(' .. flow .. '0', 'BYLEX', 'LIMIT', 0, 100)
  local is_gone = #of_it < 100
  for _, child in ipairs(of_it) do is_gone = budget > 0 and remove(child) and is_gone end
  is_gone = is_gone and budget > 0 and remove(flow)
  if not is_gone then
    more = 1
    break
  end
  gone = gone + 1
  redis.call('ZREM', place, flow)
end
return { 'trimmed', gone, (more == 1 or gone >= 100) and 1 or 0 }
