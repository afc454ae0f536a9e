-- Tells workflows how nodes of theirs ended, and opens what waited for that.
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
-- KEYS[17] meta       (hash)  events so far, whether the workflow could be told of jobs
-- KEYS[18] events     (stream)  what happened to instances and nodes
-- ARGV[1]  ends       (words instance, node, run, c | f | x of a job, F | X of a graph that is not there, value or
--                     failure, of a job that returned a graph byte 1, bytes of the value, space, value, graph; at most
--                     200)
-- Returns  {'advanced', how many entries of the outbox are to be carried out at once, those, eight words for each
--          node to be sent: see lib/flow.lua}
-- Emits    node, paused, ended
-- Refuses  WRONGTYPE before the first write
local keys = { head = head, running = running, paused = paused, completed = completed, failed = failed,
  cancelled = cancelled, nodes = nodes, input = input, value = value, shapes = shapes, stopping = stopping,
  outbox = outbox, cursor = cursor, output = output, error = errors, grow = grow }
expect_types({}, {}, { head, nodes, input, value, shapes, stopping, cursor, output, errors, grow, meta },
  { running, paused, completed, failed, cancelled, outbox })
local known, touched, opened, budget, _, now_ms = {}, {}, { later = {} }, a_budget(), now_us()
-- It can be told again. A shrinking command first: behind it a server at maxmemory takes the others.
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
  -- Nothing opens in one that stops.
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
  if one.is_miscounted then recount(keys, one) end
end
end_or_keep_all(known, keys, touched, budget, now_ms, opened)
write_all(keys)
tell_all(keys, meta, events)
local reply = { 'advanced' }
add_news(reply, keys, opened, now_ms)
return reply
