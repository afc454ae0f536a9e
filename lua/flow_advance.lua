-- Records how nodes of workflows ended, and opens the nodes that waited for them.
-- Uses     now words events emit types book flow flow_step flow_reply flow_events filled terminal wake may
-- Uses     new_jobs rest flow_dispatch
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
-- Then     for each of at most 4 tasks without partitions on this server: payload, completed, failed, cancelled, wait,
--          meta, events, wake, dispatchedAt, outbox. Opened nodes without options are dispatched to them
-- ARGV[1]  ends       (five words each, at most 200: instance, node, run, how it ended, value or failure. c | f | x:
--                      its job completed, failed, was cancelled; F | X: its graph failed, was cancelled, without an
--                      instance of its own. If the job returned a graph, the value is byte 1, bytes of the value,
--                      space, value, graph). The last argument, if there are keys of tasks: wire version, workflow,
--                      then for each task its name, and how many of the ends are its jobs, in the order of the tasks:
--                      they leave its outbox
-- Returns  {'advanced', number of outbox entries to carry out at once, those entries, the words of add_opened}. The
--          number of dispatched nodes comes before that, if there are keys of tasks
-- Emits    node, paused, ended; dispatched
-- Refuses  WRONGTYPE before the first write
local ENDS, GRAPH_ENDS = { ['c'] = 'c', ['f'] = 'f', ['x'] = 'x' }, { ['F'] = 'f', ['X'] = 'x' }
local known, touched, opened, budget, _, now_ms = {}, {}, { later = {} }, a_budget(), now_us()
local last = #ARGV - #ARGV % 5
local tasks = tasks_of(18, ARGV[last + 1])
skip_at_maxmemory(keys, tasks)
-- The workflow accepts reports again. A shrinking command first: only then a server at maxmemory accepts the others.
redis.call('HDEL', meta, 'untold')
local flows, names, ones, indexes = {}, {}, {}, {}
for place = 1, last / 5 do
  flows[place], names[place] = ARGV[5 * place - 4], node_of(ARGV[5 * place - 4], ARGV[5 * place - 3])
end
meet(known, keys, flows)
fetch(keys, 'nodes', names)
for place = 1, #names do
  local one = known[flows[place]]
  if one and is_open(read(keys, 'nodes', names[place])) then
    ones[#ones + 1] = one
    indexes[#ones] = ARGV[5 * place - 3]
  end
end
foresee_all(keys, ones, indexes, budget)
for place = 1, #names do
  local name, flow, index, run, how, said = names[place], unpack(ARGV, 5 * place - 4, 5 * place)
  local one = known[flow]
  local state = goes_on(one, run) and (read(keys, 'nodes', name) or '')
  local kind = state and string.sub(state, 1, 1)
  local size = kind == 'o' and how == 'c' and string.byte(said) == 1 and string.match(said, '^\1(%d+) ')
  -- Nothing opens in an instance that stops.
  if kind == 'o' and size and one.stopping then how, said, size = 'x', CANCELLED, nil end
  if state and state ~= 'o' and is_damaged(keys, one, index, state) then
    end_node(keys, one, index, 'f', CORRUPT, budget, now_ms, opened)
    keys.corrupt = (keys.corrupt or 0) + 1
    one.is_miscounted = true
  elseif kind == 'o' and size then
    grow_node(keys, one, index, said, #size + 2, tonumber(size), now_ms, opened)
  elseif kind == 'o' and ENDS[how] or kind == 'g' and GRAPH_ENDS[how] and is_gone(known, keys, name .. '.' .. run) then
    end_node(keys, one, index, ENDS[how] or GRAPH_ENDS[how], said, budget, now_ms, opened)
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
local dispatched = dispatch_opened(keys, tasks, opened, now_ms)
write_and_report(keys, opened, now_ms)
clear_outboxes(tasks, names)
return add_news({ 'advanced', tasks[1] and dispatched }, keys, opened, now_ms)
