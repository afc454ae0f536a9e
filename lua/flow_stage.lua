-- Writes a part of an instance that is too large for one call; flow_start then starts it.
-- Uses     now types book flow
-- KEYS[1]  instances (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  nodes     (hash)  instance/node -> its state
-- KEYS[3]  input     (hash)  instance/node -> payload
-- KEYS[4]  shapes    (hash)  graphs, by digest
-- KEYS[5]  staging   (hash)  instance -> nonce, parts written, when (ms), shape, nodes
-- ARGV[1]  instance  (id)
-- ARGV[2]  nonce     (of this start)
-- ARGV[3]  part      (number, from 0)
-- ARGV[4]  digest    (of the shape)
-- ARGV[5]  nodes     (number of nodes in all)
-- ARGV[6]  states    (number of pairs: node, state)
-- ARGV[7]  records   (number of pairs: field, record of the shape)
-- ARGV[8]  patience  (ms: another start of this id is given up if no part of it came for so long)
-- ARGV[9]  rest      (those pairs; then pairs: node, payload; at most 512 KiB, or one value)
-- Returns  {'staged', 1 if the shape is known and need not be sent else 0}
-- Returns  {'existed'}: there is an instance with this id
-- Returns  {'other'}: another start of it is under way; {'left'}: another start was given up, and flow_unstage must
--          remove what it wrote; {'parts', how many are written}: send the part with this number next
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local flow, own, part, digest = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local states, records = tonumber(ARGV[6]), tonumber(ARGV[7])
if redis.call('HEXISTS', instances, flow) == 1 then return { 'existed' } end
expect_types({}, {}, { nodes, input, shapes, staging }, {})
local _, now_ms = now_us()
local known = redis.call('HGET', staging, flow)
local nonce, got, at = string.match(known or '', '^(%S+) (%d+) (%d+) %S+ %d+$')
local is_known = redis.call('HEXISTS', shapes, digest .. '@')
if known and nonce ~= own then
  return { nonce and math.abs(now_ms - at) < tonumber(ARGV[8]) and 'other' or 'left' }
end
got = tonumber(got) or 0
-- Parts that were written before are not written again.
if part < got then return { 'staged', is_known } end
if part > got then return { 'parts', got } end
-- A growing command first: a server at maxmemory refuses the call whole.
redis.call('HSET', staging, flow, table.concat({ own, part + 1, string.format('%d', now_ms), digest, ARGV[5] }, ' '))
-- A start counts as a user of its shape, so that the shape is not removed meanwhile.
if part == 0 then redis.pcall('HINCRBY', shapes, digest .. '#', 1) end
local rest = 9
for place, pairs_of in ipairs({ states, records, (#ARGV - 8) / 2 - states - records }) do
  local target = place == 2 and shapes or place == 1 and nodes or input
  local fields = { unpack(ARGV, rest, rest + 2 * pairs_of - 1) }
  for field = 1, place == 2 and 0 or #fields, 2 do fields[field] = node_of(flow, fields[field]) end
  if #fields > 0 then redis.call('HSET', target, unpack(fields)) end
  rest = rest + 2 * pairs_of
end
return { 'staged', is_known }
