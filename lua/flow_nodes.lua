-- Reads a page of the nodes of an instance of a workflow. Changes nothing.
-- Uses     book flow
-- KEYS[1]  instances (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  shapes    (hash)  graphs, by digest
-- KEYS[3]  nodes     (hash)  instance/node -> its state
-- ARGV[1]  instance  (id)
-- ARGV[2]  from      (number of the first node)
-- ARGV[3]  limit     (nodes per call, at most 500)
-- Returns  {'nodes', run, number of nodes in all, the state of each node of the page ('': missing)}
-- Returns  {'unknown'}: no such instance, or it cannot be read
-- Emits    nothing
-- Refuses  WRONGTYPE
local flow, from, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local run, digest = string.match(redis.call('HGET', instances, flow) or '', '^(%d+) %d+ %d+ %d+ (%S+) %S+')
local count = run and count_of_nodes(redis.call('HGET', shapes, digest .. '@'))
if not count then return { 'unknown' } end
local names = {}
for index = from, math.min(count, from + limit) - 1 do names[#names + 1] = node_of(flow, index) end
if #names == 0 then return { 'nodes', run, count } end
local states = redis.call('HMGET', nodes, unpack(names))
for place = 1, #names do states[place] = states[place] or '' end
return { 'nodes', run, count, unpack(states) }
