-- Runs again what did not complete of an instance of a workflow, in a new run.
-- Uses     now words events emit types book flow flow_step flow_events
-- KEYS[1]  instances  (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by time of the last step, ms
-- KEYS[3]  paused     (zset)  instances by pause time, ms
-- KEYS[4]  failed     (zset)  instances by end time, ms
-- KEYS[5]  cancelled  (zset)  instances by end time, ms
-- KEYS[6]  nodes      (hash)  instance/node -> its state
-- KEYS[7]  value      (hash)  instance/node -> value, or failure
-- KEYS[8]  shapes     (hash)  graphs, by digest
-- KEYS[9]  stopping   (hash)  instance -> how it will end, and why
-- KEYS[10] outbox     (zset)  pending steps, by due time, ms
-- KEYS[11] error      (hash)  instance -> why it ended
-- KEYS[12] grow       (hash)  instance/node -> graph that its job returned
-- KEYS[13] meta       (hash)  event total
-- KEYS[14] events     (stream)  events of instances and nodes
-- KEYS[15] deadlines  (zset)  instances by deadline, ms
-- ARGV[1]  instance   (id)
-- ARGV[2]  turn       (how often it had changed its place when the caller looked: see `instances` in lib/flow.lua)
-- ARGV[3]  live       (with the last part: how many nodes did not complete, 0 if all did; '-' with the other parts)
-- ARGV[4]  nodes      (pairs number, state of each node in this part that did not complete, at most 500)
-- Returns  {'again', run}: the caller opens ready nodes by flow_open; {'part'}: the next part has to follow
-- Returns  {'moved'}: a node has completed meanwhile, look again
-- Returns  {'busy', open nodes}: handlers of it may run; {'changed'}: it has changed its place since; {'unknown'}: no
--          such instance, or a child
-- Emits    started
-- Refuses  WRONGTYPE before the first write
local flow, turn, live = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
expect_types({}, {}, { nodes, value, stopping, errors, grow, meta }, { running, paused, failed, cancelled, outbox,
  deadlines })
local one, _, now_ms = instance_of({}, keys, flow), now_us()
-- A child runs again as a whole.
if not one or one.parent then return { 'unknown' } end
local may = one.is_paused or redis.call('ZSCORE', failed, flow) or redis.call('ZSCORE', cancelled, flow)
-- Between its parts nothing of the earlier run continues.
local is_begun = one.stopping == 'again '
if tonumber(one.turn) ~= turn or one.runs or one.stopping and not is_begun or not may then return { 'changed' } end
if one.out > 0 then return { 'busy', one.out } end
local states, names = {}, {}
for at = 4, #ARGV, 2 do
  names[#names + 1] = node_of(flow, ARGV[at])
  states[#states + 1], states[#states + 2] = names[#names], ARGV[at + 1]
end
-- An instance that was stopped as its last node completed has nothing to run again: its new run ends at once.
if #names == 0 and (live ~= 0 or one.bad ~= '-') then return { 'changed' } end
for _, state in ipairs(#names > 0 and redis.call('HMGET', nodes, unpack(names)) or {}) do
  if state == 'c' then return { 'moved' } end
end
-- A shrinking command first: only then a server at maxmemory accepts the others.
redis.call('HDEL', value, '', unpack(names))
redis.call('HDEL', grow, '', unpack(names))
if #names > 0 then redis.call('HSET', nodes, unpack(states)) end
-- Until the last part the instance stays where it is.
if not live then
  redis.call('HSET', stopping, flow, 'again ')
  -- If the caller dies between the parts, another worker continues.
  redis.call('ZADD', outbox, 'NX', string.format('%d', now_ms), 'r ' .. flow .. '/' .. one.run)
  return { 'part' }
end
redis.call('HDEL', stopping, flow)
for _, place in ipairs({ paused, failed, cancelled }) do redis.call('ZREM', place, flow) end
redis.call('HDEL', errors, flow)
redis.call('ZREM', deadlines, flow)
redis.call('ZREM', outbox, 'r ' .. flow .. '/' .. one.run)
redis.call('ZADD', running, string.format('%d', now_ms), flow)
one.run, one.turn, one.live, one.out, one.bad = string.format('%d', one.run + 1), one.turn + 1, live, 0, '-'
note(now_ms, 'o ' .. flow .. '/' .. one.run)
write_head(one)
tell(keys, 'started', flow .. '/' .. one.run)
write_and_report(keys)
return { 'again', one.run }
