-- Writes an instance of a workflow, and opens the nodes without inputs.
-- Uses     now words events emit types book flow flow_step flow_reply flow_events
-- KEYS[1]  instances  (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by time of the last step, ms
-- KEYS[3]  paused     (zset)  instances by pause time, ms
-- KEYS[4]  completed  (zset)  instances by end time, ms
-- KEYS[5]  failed     (zset)  instances by end time, ms
-- KEYS[6]  cancelled  (zset)  instances by end time, ms
-- KEYS[7]  nodes      (hash)  instance/node -> its state
-- KEYS[8]  input      (hash)  instance/node -> payload
-- KEYS[9]  value      (hash)  instance/node -> value, or failure
-- KEYS[10] shapes     (hash)  graphs, by digest
-- KEYS[11] stopping   (hash)  instance -> how it will end, and why
-- KEYS[12] outbox     (zset)  pending steps, by due time, ms
-- KEYS[13] tasks      (zset)  tasks of its nodes, by time of last use, ms
-- KEYS[14] children   (zset)  instances that run as nodes of others, all with the score 0
-- KEYS[15] deadlines  (zset)  instances by deadline, ms
-- KEYS[16] staging    (hash)  instance -> nonce, parts written, when (ms), shape, nodes
-- KEYS[17] headers    (hash)  instance -> its headers, JSON
-- KEYS[18] meta       (hash)  event total
-- KEYS[19] events     (stream)  events of instances and nodes
-- ARGV[1]  instance   (id)
-- ARGV[2]  digest     (of the shape)
-- ARGV[3]  nodes      (number of nodes)
-- ARGV[4]  staged     (nonce and number of parts if it was written in parts, else '-')
-- ARGV[5]  records    (number of pairs: field, record of the shape; 0 if it should exist already)
-- ARGV[6]  delay      (ms before which none of its jobs runs; 0 for none)
-- ARGV[7]  deadline   (ms from now; 0 for none)
-- ARGV[8]  tasks      (names, separated by spaces)
-- ARGV[9]  headers    (JSON object of texts; '' for none, and for a child)
-- ARGV[10] rest       (states of the nodes; pairs of the shape; pairs: node, payload; nothing after parts)
-- Returns  {'started', the words of add_opened in lib/flow_reply.lua}; after parts none: flow_open opens them
-- Returns  {'existed'}: there is an instance with this id; nothing is written
-- Returns  {'stale'}: the node of this child no longer waits for it; nothing is written
-- Returns  {'shape'}, {'parts'}: the shape, or a part, is missing and must be sent; {'left'}: another start has written
--          parts; nothing is written
-- Emits    started
-- Refuses  WRONGTYPE before the first write
local flow, digest, count, staged, records = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
if redis.call('HEXISTS', instances, flow) == 1 then return { 'existed' } end
expect_types({}, {}, { nodes, input, value, shapes, stopping, staging, headers, meta }, { running, paused, completed,
  failed, cancelled, outbox, tasks, children, deadlines })
local parent, node, run = string.match(flow, '^(.+)/(%d+)%.(%d+)$')
local above = parent and instance_of({}, keys, parent)
if parent and not (goes_on(above, run) and not above.stopping
  and string.match(redis.call('HGET', nodes, node_of(parent, node)) or '', '^g')) then return { 'stale' } end
local is_whole, known = staged == '-', redis.call('HGET', staging, flow)
if is_whole and known then return { 'left' } end
if not is_whole and string.match(known or '', '^%S+ %d+') ~= staged then return { 'parts' } end
local is_known = redis.call('HEXISTS', shapes, digest .. '@') == 1
if not is_known and records == 0 then return { 'shape' } end
local states, inputs, opened, _, now_ms = {}, {}, { later = {} }, now_us()
now_ms = math.floor(now_ms)
local due = now_ms + ARGV[6]
local one = { flow = flow, run = '1', turn = 0, live = count, out = 0, digest = digest, bad = '-', due = due,
  over = '' }
-- A growing command first: a server at maxmemory refuses the call whole.
redis.call('ZADD', running, string.format('%d', now_ms), flow)
for at = 1, is_whole and count or 0 do
  states[2 * at - 1], states[2 * at] = node_of(flow, at - 1), ARGV[9 + at]
end
if is_whole then redis.call('HSET', nodes, unpack(states)) end
local rest = 10 + (is_whole and count or 0)
if not is_known then redis.call('HSET', shapes, unpack(ARGV, rest, rest + 2 * records - 1)) end
-- By pcall: a damaged count must not stop the start.
if is_whole then redis.pcall('HINCRBY', shapes, digest .. '#', 1) end
for at = rest + 2 * records, #ARGV, 2 do
  inputs[#inputs + 1], inputs[#inputs + 2] = node_of(flow, ARGV[at]), ARGV[at + 1]
end
if #inputs > 0 then redis.call('HSET', input, unpack(inputs)) end
if ARGV[9] ~= '' then redis.call('HSET', headers, flow, ARGV[9]) end
for name in string.gmatch(ARGV[8], '%S+') do redis.call('ZADD', tasks, string.format('%d', now_ms), name) end
local roots = {}
for at = 1, #states, 2 do
  if is_open(states[at + 1]) then roots[#roots + 1] = digest .. '/' .. (at - 1) / 2 end
end
fetch(keys, 'shapes', roots)
for at = 1, #states / 2 do
  -- A node that cannot be sent counts as open too: it is cancelled with the others.
  local is_first = is_open(states[2 * at])
  if is_first and not open_node(keys, one, at - 1, now_ms, opened) then one.out = one.out + 1 end
end
if not is_whole then note(now_ms, 'o ' .. flow .. '/1') end
if parent then redis.call('ZADD', children, 0, flow) end
if ARGV[7] ~= '0' then redis.call('ZADD', deadlines, string.format('%d', now_ms + ARGV[7]), flow) end
redis.call('HDEL', staging, flow)
write_head(one)
tell(keys, 'started', flow .. '/1')
write_and_report(keys, opened, now_ms)
return add_opened({ 'started' }, keys, opened, now_ms)
