-- Cancels an instance of a workflow.
-- Uses     now shrink_first words events emit types book flow flow_step flow_reply flow_events
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
-- KEYS[12] output     (hash)  instance -> its output
-- KEYS[13] error      (hash)  instance -> why it ended
-- KEYS[14] input      (hash)  instance/node -> payload
-- KEYS[15] cursor     (hash)  instance/node/run -> next dependent of an ended node
-- KEYS[16] grow       (hash)  instance/node -> graph that its job returned
-- KEYS[17] meta       (hash)  event total
-- KEYS[18] events     (stream)  events of instances and nodes
-- ARGV[1]  instance   (id)
-- ARGV[2]  reason     (text)
-- Returns  {'stopping', run}: the caller cancels the jobs of its open nodes
-- Returns  {'ended', place, then as flow_advance}: it had ended, or ends now; {'unknown'}: no such instance
-- Emits    node, paused, ended
-- Refuses  WRONGTYPE before the first write
local flow, reason = ARGV[1], ARGV[2]
expect_types({}, {}, { nodes, value, stopping, output, errors, input, cursor, grow, meta },
  { completed, failed, cancelled, outbox })
local known = {}
local one = instance_of(known, keys, flow)
if not one then return { 'unknown' } end
if not (one.runs or one.is_paused) then
  -- Gives up a retry that was written in part.
  if one.stopping == 'again ' then
    redis.call('HDEL', stopping, flow)
    redis.call('ZREM', outbox, 'r ' .. flow .. '/' .. one.run)
  end
  local place = ended_in(keys, one)
  return place and { 'ended', place, 0 } or { 'unknown' }
end
local _, now_ms = now_us()
if string.match(one.stopping or '', '^%l+') == 'cancelled' then return { 'stopping', one.run } end
shrink_first('HDEL', output)
stop(keys, one, 'cancelled ' .. reason, now_ms)
local opened = { later = {} }
end_or_keep_all(known, keys, { one }, a_budget(), now_ms, opened)
write_and_report(keys, opened, now_ms)
if one.runs then return { 'stopping', one.run } end
return add_news({ 'ended', 'cancelled' }, keys, opened, now_ms)
