-- Removes what was written of instances whose start in parts was given up.
-- Uses     now shrink_first types book flow flow_remove
-- KEYS[1]  staging   (hash)  instance -> nonce, parts written, when (ms), shape, nodes
-- KEYS[2]  nodes     (hash)  instance/node -> its state
-- KEYS[3]  input     (hash)  instance/node -> payload
-- KEYS[4]  value     (hash)  instance/node -> value, or failure
-- KEYS[5]  grow      (hash)  instance/node -> graph that its job returned
-- KEYS[6]  shapes    (hash)  graphs, by digest
-- KEYS[7]  cursor    (hash)  't ' and instance -> what is left to remove
-- ARGV[1]  age       (ms: younger starts may send more parts)
-- ARGV[2]  instance  (id; '' or omitted: any)
-- Returns  {'unstaged', how many, 1 if others remain else 0}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- From a random place on, so that young starts do not hide the others. A small hash is read whole.
local found = redis.call('HSCAN', staging, string.format('%d', now_us() % 65536), 'COUNT', 20)[2]
if ARGV[2] and ARGV[2] ~= '' then found = { ARGV[2], redis.call('HGET', staging, ARGV[2]) or nil } end
expect_types({}, {}, { nodes, input, value, grow, shapes, cursor }, {})
local budget, gone, left, _, now_ms = 500, 0, 0, now_us()
if #found > 1 then shrink_first('HDEL', cursor) end
for at = 1, #found - 1, 2 do
  local flow, start, written, digest, count = found[at], string.match(found[at + 1], '^(%S+ %d+) (%d+) (%S+) (%d+)$')
  local is_old = not start or math.abs(now_ms - written) > tonumber(ARGV[1])
  if is_old and budget > 0 and gone < 20 then
    -- From now on no part of this start is accepted.
    if start then redis.call('HSET', staging, flow, '- 0 0 ' .. digest .. ' ' .. count) end
    local is_gone
    budget, is_gone = remove_instance(keys, flow, digest, tonumber(count) or 0, budget)
    if is_gone then
      redis.call('HDEL', staging, flow)
      gone = gone + 1
    end
  end
  if is_old and budget == 0 then left = 1 end
end
return { 'unstaged', gone, (left == 1 or gone >= 20) and 1 or 0 }
