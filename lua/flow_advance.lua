-- Records how nodes of workflows ended, and opens the nodes that waited for them.
-- Uses     now events emit types book flow flow_step flow_reply flow_events
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
-- KEYS[17] meta       (hash)  event total; untold: when jobs could not be reported
-- KEYS[18] events     (stream)  events of instances and nodes
-- ARGV[1]  ends       (five words each, at most 200: instance, node, run, how it ended, value or failure. c | f | x:
--                      its job completed, failed, was cancelled; F | X: its graph failed, was cancelled, without an
--                      instance of its own. If the job returned a graph, the value is byte 1, bytes of the value,
--                      space, value, graph)
-- Returns  {'advanced', number of outbox entries to carry out at once, those entries, the words of add_opened}
-- Emits    node, paused, ended
-- Refuses  WRONGTYPE before the first write
expect_types({}, {}, { instances, nodes, input, value, shapes, stopping, cursor, output, errors, grow, meta },
  { running, paused, completed, failed, cancelled, outbox })
local known, touched, opened, budget, _, now_ms = {}, {}, { later = {} }, a_budget(), now_us()
-- The workflow accepts reports again. A shrinking command first: only then a server at maxmemory accepts the others.
redis.call('HDEL', meta, 'untold')
local flows, names, ends = {}, {}, {}
for at = 1, #ARGV, 5 do flows[#flows + 1], names[#names + 1] = ARGV[at], node_of(ARGV[at], ARGV[at + 1]) end
meet(known, keys, flows)
fetch(keys, 'nodes', names)
for place, name in ipairs(names) do
  local one = known[flows[place]]
  if one and is_open(read(keys, 'nodes', name)) then ends[#ends + 1] = { one, ARGV[5 * place - 3] } end
end
foresee_all(keys, ends, budget)
for place, name in ipairs(names) do
  local flow, index, run, how, said = unpack(ARGV, 5 * place - 4, 5 * place)
  local one = known[flow]
  local state = goes_on(one, run) and (read(keys, 'nodes', name) or '')
  local kind, size = state and string.sub(state, 1, 1), how == 'c' and string.match(said, '^\1(%d+) ')
  -- Nothing opens in an instance that stops.
  if kind == 'o' and size and one.stopping then how, said, size = 'x', CANCELLED, nil end
  if state and is_damaged(keys, one, index, state) then
    end_node(keys, one, index, 'f', CORRUPT, budget, now_ms, opened)
    keys.corrupt = (keys.corrupt or 0) + 1
    one.is_miscounted = true
  elseif kind == 'o' and size then
    grow_node(keys, one, index, said, #size + 2, tonumber(size), now_ms, opened)
  elseif string.match(how, '^[FX]$') and kind == 'g' and is_gone(known, keys, name .. '.' .. run) then
    end_node(keys, one, index, string.lower(how), said, budget, now_ms, opened)
  elseif string.match(how, '^[cfx]$') and kind == 'o' then
    end_node(keys, one, index, string.lower(how), said, budget, now_ms, opened)
  else
    one = nil
  end
  if one and not touched[flow] then
    touched[flow] = true
    touched[#touched + 1] = one
  end
end
for _, one in ipairs(touched) do
  if one.is_miscounted then recount(keys, one, now_ms) end
end
end_or_keep_all(known, keys, touched, budget, now_ms, opened)
write_and_report(keys)
return add_news({ 'advanced' }, keys, opened, now_ms)
