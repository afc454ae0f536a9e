-- Lists steps of a workflow that were not carried out in time, and stops instances past their deadlines.
-- Uses     now shrink_first words events emit types book flow flow_step flow_reply flow_events
-- KEYS[1]  instances  (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by time of the last step, ms
-- KEYS[3]  paused     (zset)  instances by pause time, ms
-- KEYS[4]  nodes      (hash)  instance/node -> its state
-- KEYS[5]  input      (hash)  instance/node -> payload
-- KEYS[6]  value      (hash)  instance/node -> value, or failure
-- KEYS[7]  shapes     (hash)  graphs, by digest
-- KEYS[8]  stopping   (hash)  instance -> how it will end, and why
-- KEYS[9]  outbox     (zset)  pending steps, by due time, ms
-- KEYS[10] grow       (hash)  instance/node -> graph that its job returned
-- KEYS[11] deadlines  (zset)  instances by deadline, ms
-- KEYS[12] completed  (zset)  instances by end time, ms
-- KEYS[13] failed     (zset)  instances by end time, ms
-- KEYS[14] cancelled  (zset)  instances by end time, ms
-- KEYS[15] output     (hash)  instance -> its output
-- KEYS[16] error      (hash)  instance -> why it ended
-- KEYS[17] cursor     (hash)  instance/run -> next node to open
-- KEYS[18] meta       (hash)  event total
-- KEYS[19] events     (stream)  events of instances and nodes
-- ARGV[1]  grace      (ms: younger steps are still being carried out)
-- ARGV[2]  limit      (entries per call, at most 200)
-- Returns  {'looked', 1 if others remain else 0, then as flow_advance}
-- Emits    ended
-- Refuses  WRONGTYPE before the first write
local grace, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local known, _, now_ms = {}, now_us()
local due = redis.call('ZRANGEBYSCORE', outbox, '-inf', string.format('%d', now_ms - grace), 'LIMIT', 0, limit)
-- Also entries over a minute ahead: the server's clock went back.
local ahead = redis.call('ZRANGEBYSCORE', outbox, string.format('(%d', now_ms + 60000), '+inf', 'LIMIT', 0, limit)
for _, entry in ipairs(ahead) do due[#due + 1] = entry end
local gone, others, sends, unreadable = {}, {}, {}, {}
local late = redis.call('ZRANGEBYSCORE', deadlines, '-inf', string.format('%d', now_ms), 'LIMIT', 0, limit)
if #late > 0 then
  expect_types({}, {}, { instances, nodes, input, value, shapes, stopping, grow, output, errors, cursor, meta },
    { running, paused, completed, failed, cancelled })
  shrink_first('ZREM', deadlines)
end
for _, flow in ipairs(late) do
  local one = instance_of(known, keys, flow)
  -- A retry that was written in part removes the deadline with its last part. Until then it is in the outbox.
  local is_begun = one and one.stopping == 'again '
  if one and (one.runs or one.is_paused) and not one.stopping then
    stop(keys, one, 'failed {"code":"timeout","message":"its deadline passed"}', now_ms)
    end_or_keep(keys, one, now_ms)
    if one.runs then others[#others + 1] = 'x ' .. flow .. '/' .. one.run end
  end
  if not is_begun then redis.call('ZREM', deadlines, flow) end
end
for _, entry in ipairs(due) do
  local kind, flow, index, run = string.match(entry, '^(s) (%S+)/(%d+)/(%d+)$')
  if kind then
    local one = instance_of(known, keys, flow)
    local state = goes_on(one, run) and not one.stopping and redis.call('HGET', nodes, node_of(flow, index))
    local send = state and is_open(state) and sendable(keys, one, index, state)
    sends[#sends + 1] = send or nil
    if not send then gone[#gone + 1] = entry end
    if send == nil then unreadable[#unreadable + 1] = one end
  else
    others[#others + 1] = entry
  end
end
local reply = { 'looked', math.max(#due, #late) >= limit and 1 or 0, #others }
for _, entry in ipairs(others) do reply[#reply + 1] = entry end
add_opened(reply, keys, sends, now_ms)
if #gone > 0 then redis.call('ZREM', outbox, unpack(gone)) end
for _, one in ipairs(unreadable) do
  if not one.stopping then
    stop(keys, one, UNREADABLE, now_ms)
    write_head(one)
  end
end
write_and_report(keys)
return reply
