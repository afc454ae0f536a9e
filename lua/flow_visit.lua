-- Goes on from an ended node to those of its dependents that were over the budget of an earlier call.
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
-- KEYS[13] cursor     (hash)  instance/node/run -> next dependent of an ended node
-- KEYS[14] output     (hash)  instance -> what it answers
-- KEYS[15] error      (hash)  instance -> why it ended so
-- KEYS[16] grow       (hash)  instance/node -> graph that its job returned
-- KEYS[17] meta       (hash)  events so far
-- KEYS[18] events     (stream)  what happened to instances and nodes
-- ARGV[1]  instance   (id)
-- ARGV[2]  node       (number)
-- ARGV[3]  run        (number)
-- Returns  {'visited', how many entries of the outbox are to be carried out at once, those, eight words for each
--          node to be sent: see lib/flow.lua}
-- Emits    node, paused, ended
-- Refuses  WRONGTYPE before the first write
local flow, index, run = ARGV[1], ARGV[2], ARGV[3]
local keys = { head = head, running = running, paused = paused, completed = completed, failed = failed,
  cancelled = cancelled, nodes = nodes, input = input, value = value, shapes = shapes, stopping = stopping,
  outbox = outbox, cursor = cursor, output = output, error = errors, grow = grow }
expect_types({}, {}, { head, nodes, input, value, shapes, stopping, cursor, output, errors, grow, meta },
  { running, paused, completed, failed, cancelled, outbox })
local mark, _, now_ms = flow .. '/' .. index .. '/' .. run, now_us()
local known = {}
local one = instance_of(known, keys, flow)
local from, how = string.match(redis.call('HGET', cursor, mark) or '', '^(%d+) ([c-])$')
if not goes_on(one, run) or one.stopping or not (from or redis.call('ZSCORE', outbox, 'v ' .. mark)) then
  redis.call('ZREM', outbox, 'v ' .. mark)
  redis.call('HDEL', cursor, mark)
  return { 'visited', 0 }
end
local opened, budget = { later = {} }, a_budget()
redis.call('HDEL', cursor, '')
if from then
  visit(keys, one, { { index, how == 'c', tonumber(from), true } }, budget, now_ms, opened)
else
  -- How far it had come nobody knows.
  put(keys, 'outbox', 'v ' .. mark, false)
  write(keys, 'cursor', mark, false)
  stop(keys, one, UNREADABLE, now_ms)
end
end_or_keep_all(known, keys, { one }, budget, now_ms, opened)
write_all(keys)
tell_all(keys, meta, events)
local reply = { 'visited' }
add_news(reply, keys, opened, now_ms)
return reply
