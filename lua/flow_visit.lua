-- Visits more dependents of an ended node: those that exceeded the budget of an earlier call.
-- Uses     now shrink_first words events emit types book flow flow_step flow_reply flow_events filled terminal wake
-- Uses     may new_jobs rest flow_dispatch
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
-- KEYS[13] cursor     (hash)  instance/node/run -> next dependent of an ended node
-- KEYS[14] output     (hash)  instance -> its output
-- KEYS[15] error      (hash)  instance -> why it ended
-- KEYS[16] grow       (hash)  instance/node -> graph that its job returned
-- KEYS[17] meta       (hash)  event total
-- KEYS[18] events     (stream)  events of instances and nodes
-- Then     the keys of tasks, as for flow_advance
-- ARGV[1]  instance   (id)
-- ARGV[2]  node       (number)
-- ARGV[3]  run        (number)
-- ARGV[4]  tasks      (as the last argument of flow_advance, if there are keys of tasks)
-- Returns  {'visited', then as flow_advance}
-- Emits    node, paused, ended; dispatched
-- Refuses  WRONGTYPE before the first write
local flow, index, run = ARGV[1], ARGV[2], ARGV[3]
local mark, _, now_ms = flow .. '/' .. index .. '/' .. run, now_us()
local known = {}
local one = instance_of(known, keys, flow)
local from, how = string.match(redis.call('HGET', cursor, mark) or '', '^(%d+) ([c-])$')
if not goes_on(one, run) or one.stopping or not (from or redis.call('ZSCORE', outbox, 'v ' .. mark)) then
  redis.call('ZREM', outbox, 'v ' .. mark)
  redis.call('HDEL', cursor, mark)
  return ARGV[4] and { 'visited', 0, 0 } or { 'visited', 0 }
end
local opened, budget, tasks = { later = {} }, a_budget(), tasks_of(18, ARGV[4])
skip_at_maxmemory(keys, tasks)
shrink_first('HDEL', cursor)
if from then
  visit(keys, one, index, how == 'c', tonumber(from), true, budget, now_ms, opened)
else
  -- The progress of the visit is lost.
  put('outbox', 'v ' .. mark, false)
  write('cursor', mark, false)
  stop(keys, one, UNREADABLE, now_ms)
end
end_or_keep_all(known, keys, { one }, budget, now_ms, opened)
local dispatched = dispatch_opened(keys, tasks, opened, now_ms)
write_and_report(keys, opened, now_ms)
return add_news({ 'visited', tasks[1] and dispatched }, keys, opened, now_ms)
