-- Pauses or resumes an instance of a workflow.
-- Uses     now words events emit types book flow flow_step flow_events
-- KEYS[1]  instances  (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by time of the last step, ms
-- KEYS[3]  paused     (zset)  instances by pause time, ms
-- KEYS[4]  completed  (zset)  instances by end time, ms
-- KEYS[5]  failed     (zset)  instances by end time, ms
-- KEYS[6]  cancelled  (zset)  instances by end time, ms
-- KEYS[7]  nodes      (hash)  instance/node -> its state
-- KEYS[8]  value      (hash)  instance/node -> value, or failure
-- KEYS[9]  shapes     (hash)  graphs, by digest
-- KEYS[10] stopping   (hash)  instance -> how it will end, and why
-- KEYS[11] outbox     (zset)  pending steps, by due time, ms
-- KEYS[12] cursor     (hash)  instance/node/run -> next dependent of an ended node; instance/run -> next node to open
-- KEYS[13] output     (hash)  instance -> its output
-- KEYS[14] error      (hash)  instance -> why it ended; if paused: since when (ms), by whom, why
-- KEYS[15] meta       (hash)  event total
-- KEYS[16] events     (stream)  events of instances and nodes
-- ARGV[1]  instance   (id)
-- ARGV[2]  turn       (how often it had changed its place when the caller looked: see `instances` in lib/flow.lua)
-- ARGV[3]  action     (pause or resume)
-- ARGV[4]  by         (who asks; may be omitted)
-- ARGV[5]  why        (JSON of who pauses it, and why; may be omitted)
-- Returns  {'paused'}: no node opens any more; {'resumed', run}: the caller opens ready nodes by flow_open
-- Returns  {'ended'}: nothing was left to run
-- Returns  {'changed'}: it has changed its place since, or stops; {'unknown'}: no such instance, or a child
-- Emits    paused, resumed, ended
-- Refuses  WRONGTYPE before the first write
local flow, turn, action = ARGV[1], tonumber(ARGV[2]), ARGV[3]
expect_types({}, {}, { nodes, value, stopping, output, errors, cursor, meta },
  { running, paused, completed, failed, cancelled, outbox })
local one, _, now_ms = instance_of({}, keys, flow), now_us()
-- A child cannot be paused: the instance to which it belongs can.
if not one or one.parent then return { 'unknown' } end
local may = action == 'pause' and one.runs or action == 'resume' and one.is_paused
if tonumber(one.turn) ~= turn or one.stopping or not may then return { 'changed' } end
local entry, now = 'o ' .. flow .. '/' .. one.run, string.format('%d', now_ms)
-- A shrinking command first: only then a server at maxmemory accepts the others.
redis.call('HDEL', cursor, flow .. '/' .. one.run)
one.turn, one.runs, one.is_paused = one.turn + 1, action == 'resume', action == 'pause'
if action == 'pause' then
  redis.call('ZREM', running, flow)
  redis.call('ZADD', paused, now, flow)
  redis.call('ZREM', outbox, entry)
  if ARGV[5] then write('errors', flow, now .. ' ' .. ARGV[5]) end
  tell(keys, 'paused', flow .. '/' .. one.run)
else
  redis.call('ZREM', paused, flow)
  redis.call('ZADD', running, now, flow)
  write('errors', flow, false)
  note(now_ms, entry)
  tell(keys, 'resumed', flow .. '/' .. one.run)
end
keys.by = ARGV[4]
end_or_keep(keys, one, now_ms)
write_and_report(keys)
if action == 'pause' then return { 'paused' } end
return one.runs and { 'resumed', one.run } or { 'ended' }
