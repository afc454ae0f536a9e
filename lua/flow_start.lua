-- Writes an instance of a workflow, and opens the nodes that wait for nothing.
-- KEYS[1]  head       (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by when they were moved last, ms
-- KEYS[3]  paused     (zset)  instances by when they were paused, ms
-- KEYS[4]  completed  (zset)  instances by when they ended, ms
-- KEYS[5]  failed     (zset)  instances by when they ended, ms
-- KEYS[6]  cancelled  (zset)  instances by when they ended, ms
-- KEYS[7]  nodes      (hash)  instance/node -> its state
-- KEYS[8]  input      (hash)  instance/node -> payload
-- KEYS[9]  value      (hash)  instance/node -> value, or failure
-- KEYS[10] shapes     (hash)  records of graphs
-- KEYS[11] stopping   (hash)  instance -> how it is to end, and why
-- KEYS[12] outbox     (zset)  what is to be done, by from when on, ms
-- KEYS[13] tasks      (zset)  tasks of its nodes by when they were used last, ms
-- KEYS[14] children   (zset)  instances that run as nodes of others, all with the score 0
-- KEYS[15] deadlines  (zset)  instances by when they are stopped, ms
-- KEYS[16] staging    (hash)  instance -> how much of it is written
-- KEYS[17] meta       (hash)  events so far
-- KEYS[18] events     (stream)  what happened to instances and nodes
-- ARGV[1]  instance   (id)
-- ARGV[2]  digest     (of the shape)
-- ARGV[3]  nodes      (how many there are)
-- ARGV[4]  staged     (nonce and parts of one of which all is written, else '-')
-- ARGV[5]  records    (how many pairs field, record of the shape come; 0 where it is to be there)
-- ARGV[6]  delay      (ms: its jobs do not run before; 0 for none)
-- ARGV[7]  deadline   (ms from now on; 0 for none)
-- ARGV[8]  tasks      (names with spaces between)
-- ARGV[9]  rest       (states of the nodes; pairs of the shape; pairs number of a node, payload; none of one in parts)
-- Returns  {'started', eight words for each node to be sent: see lib/flow.lua}: of one in parts they are to be opened
-- Returns  {'existed'}: there is an instance of the id; nothing is written
-- Returns  {'stale'}: of a child, that its node waits for it no more; nothing is written
-- Returns  {'shape'}, {'parts'}: the shape, or a part, is not there, and is to come along; {'left'}: somebody else has
--          begun to write it; nothing is written
-- Emits    started
-- Refuses  WRONGTYPE before the first write
local flow, digest, count, staged, records = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local keys = { head = head, running = running, paused = paused, nodes = nodes, input = input, value = value,
  shapes = shapes, stopping = stopping, outbox = outbox }
if redis.call('HEXISTS', head, flow) == 1 then return { 'existed' } end
expect_types({}, {}, { nodes, input, value, shapes, stopping, staging, meta }, { running, paused, completed, failed,
  cancelled, outbox, tasks, children, deadlines })
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
local one = { flow = flow, run = 1, turn = 0, live = count, out = 0, digest = digest, bad = '-', due = due, over = '' }
-- A growing command first: a server at maxmemory refuses the call whole.
redis.call('ZADD', running, string.format('%d', now_ms), flow)
for at = 1, is_whole and count or 0 do
  states[2 * at - 1], states[2 * at] = node_of(flow, at - 1), ARGV[8 + at]
end
if is_whole then redis.call('HSET', nodes, unpack(states)) end
local rest = 9 + (is_whole and count or 0)
if not is_known then redis.call('HSET', shapes, unpack(ARGV, rest, rest + 2 * records - 1)) end
-- For people: one that is no number any more stops nobody.
if is_whole then redis.pcall('HINCRBY', shapes, digest .. '#', 1) end
for at = rest + 2 * records, #ARGV, 2 do
  inputs[#inputs + 1], inputs[#inputs + 2] = node_of(flow, ARGV[at]), ARGV[at + 1]
end
if #inputs > 0 then redis.call('HSET', input, unpack(inputs)) end
for name in string.gmatch(ARGV[8], '%S+') do redis.call('ZADD', tasks, string.format('%d', now_ms), name) end
local roots = {}
for at = 1, #states, 2 do
  if is_open(states[at + 1]) then roots[#roots + 1] = digest .. '/' .. (at - 1) / 2 end
end
fetch(keys, 'shapes', roots)
for at = 1, #states / 2 do
  -- One that cannot be sent is open, too: it is cancelled with the others.
  local is_first = is_open(states[2 * at])
  if is_first and not open_node(keys, one, at - 1, now_ms, opened) then one.out = one.out + 1 end
end
if not is_whole then note(keys, now_ms, 'o ' .. flow .. '/1') end
if parent then redis.call('ZADD', children, 0, flow) end
if ARGV[7] ~= '0' then redis.call('ZADD', deadlines, string.format('%d', now_ms + ARGV[7]), flow) end
redis.call('HDEL', staging, flow)
write_head(keys, one)
tell(keys, 'started', flow .. '/1')
write_all(keys)
tell_all(keys, meta, events)
local reply = { 'started' }
add_opened(reply, keys, opened, now_ms)
return reply
