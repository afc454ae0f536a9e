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
-- ARGV[1]  instance   (id)
-- ARGV[2]  digest     (of the shape)
-- ARGV[3]  nodes      (how many there are)
-- ARGV[4]  records    (how many pairs field, record of the shape come; 0 where it is to be there)
-- ARGV[5]  tasks      (names with spaces between)
-- ARGV[6]  rest       (states of the nodes; pairs of the shape; pairs number of a node, payload)
-- Returns  {'started', seven words for each node to be sent: see lib/flow.lua}
-- Returns  {'existed'}: there is an instance of the id; nothing is written
-- Returns  {'shape'}: the shape is not known, and is to come along; nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local flow, digest, count, records = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local keys = { head = head, running = running, paused = paused, nodes = nodes, input = input, value = value,
  shapes = shapes, stopping = stopping, outbox = outbox }
if redis.call('HEXISTS', head, flow) == 1 then return { 'existed' } end
expect_types({}, {}, { nodes, input, value, shapes, stopping }, { running, paused, completed, failed, cancelled, outbox,
  tasks })
local is_known = redis.call('HEXISTS', shapes, digest .. '@') == 1
if not is_known and records == 0 then return { 'shape' } end
local _, now_ms = now_us()
now_ms = math.floor(now_ms)
local states, inputs, one = {}, {}, { flow = flow, run = 1, digest = digest }
-- A growing command first: a server at maxmemory refuses the call whole.
for at = 1, count do
  local state = ARGV[5 + at]
  states[2 * at - 1], states[2 * at] = node_of(flow, at - 1), state == 'p 0 0' and 'o' or state
end
redis.call('HSET', nodes, unpack(states))
if not is_known then
  local fields = {}
  for at = 6 + count, 5 + count + 2 * records do fields[#fields + 1] = ARGV[at] end
  redis.call('HSET', shapes, unpack(fields))
end
-- For people: one that is no number any more stops nobody.
redis.pcall('HINCRBY', shapes, digest .. '#', 1)
for at = 6 + count + 2 * records, #ARGV, 2 do
  inputs[#inputs + 1], inputs[#inputs + 2] = node_of(flow, ARGV[at]), ARGV[at + 1]
end
if #inputs > 0 then redis.call('HSET', input, unpack(inputs)) end
local used = {}
for name in string.gmatch(ARGV[5], '%S+') do
  used[#used + 1], used[#used + 2] = string.format('%d', now_ms), name
end
redis.call('ZADD', tasks, unpack(used))
local opened = { later = {} }
one.out = 0
for at = 1, count do
  -- One that cannot be sent is open, too: it is cancelled with the others.
  if states[2 * at] == 'o' and not open_node(keys, one, at - 1, now_ms, opened) then one.out = one.out + 1 end
end
redis.call('ZADD', running, string.format('%d', now_ms), flow)
redis.call('HSET', head, flow, string.format('1 0 %d %d %s -', count, one.out, digest))
local reply = { 'started' }
add_opened(reply, keys, opened)
return reply
