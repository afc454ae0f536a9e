-- Opens ready nodes of an instance, after a pause or in a new run.
-- Uses     now shrink_first words events emit types book flow flow_step flow_reply flow_events
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
-- KEYS[13] cursor     (hash)  instance/node/run -> next dependent of an ended node; instance/run -> next node to open
-- KEYS[14] output     (hash)  instance -> its output
-- KEYS[15] error      (hash)  instance -> why it ended
-- KEYS[16] grow       (hash)  instance/node -> graph that its job returned
-- KEYS[17] meta       (hash)  event total
-- KEYS[18] events     (stream)  events of instances and nodes
-- ARGV[1]  instance   (id)
-- ARGV[2]  run        (number)
-- Returns  {'opened', 1 if nodes remain to look at else 0, then as flow_advance}
-- Emits    node, paused, ended
-- Refuses  WRONGTYPE before the first write
local flow, run = ARGV[1], ARGV[2]
expect_types({}, {}, { nodes, input, value, stopping, cursor, output, errors, grow, meta },
  { running, paused, completed, failed, cancelled, outbox })
local known, _, now_ms = {}, now_us()
local one, mark = instance_of(known, keys, flow), flow .. '/' .. run
-- A delayed call finds no entry: the work is done.
local is_due = goes_on(one, run) and one.runs and not one.stopping and redis.call('ZSCORE', outbox, 'o ' .. mark)
if not is_due then
  redis.call('ZREM', outbox, 'o ' .. mark)
  redis.call('HDEL', cursor, mark)
  return { 'opened', 0, 0 }
end
local count = count_of_nodes(redis.call('HGET', shapes, one.digest .. '@')) or 0
local from = tonumber(string.match(redis.call('HGET', cursor, mark) or '', '^%d+$')) or 0
-- A cursor that no call has written is ignored.
if from >= count or from % OPENS > 0 then from = 0 end
local names, records, opened = {}, {}, { later = {} }
for index = from, math.min(count, from + OPENS) - 1 do
  names[#names + 1], records[#records + 1] = node_of(flow, index), one.digest .. '/' .. index
end
foresee(keys, names, records, 0, #names)
shrink_first('HDEL', cursor)
-- No other call would ever reach what cannot be read.
if #names == 0 then stop(keys, one, UNREADABLE, now_ms) end
for place, name in ipairs(names) do
  if one.stopping then break end
  local state = read(keys, 'nodes', name) or ''
  local need = string.match(state, '^[pP] (%d+) %d+$')
  if need == '0' then
    local now = open_node(keys, one, from + place - 1, now_ms, opened)
    if now then write('nodes', name, now) end
  elseif not need and not string.match(state, '^[cfgosx]') then
    stop(keys, one, UNREADABLE, now_ms)
  end
end
local is_last = one.stopping or from + OPENS >= count
if is_last then put('outbox', 'o ' .. mark, false) end
write('cursor', mark, not is_last and tostring(from + OPENS))
end_or_keep_all(known, keys, { one }, a_budget(), now_ms, opened)
write_and_report(keys, opened, now_ms)
return add_news({ 'opened', is_last and 0 or 1 }, keys, opened, now_ms)
