-- Asks whether the handlers of nodes may begin.
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
-- KEYS[17] headers    (hash)  instance -> its headers, JSON
-- KEYS[18] meta       (hash)  event total
-- KEYS[19] events     (stream)  events of instances and nodes
-- ARGV[1]  nodes      (triples instance, node, run; at most 200)
-- Returns  {'entered', a word per node, the headers with the numbers from 1 on, then as flow_advance}. The words: `go`,
--          or `go` and the number of its headers; `later`: ask again, since its headers would take the reply over
--          16 KiB of headers; `stale`: its handler must not run. The instance stops, and the node is cancelled, or the
--          node is not open in this run
-- Emits    node, paused, ended
-- Refuses  WRONGTYPE before the first write
local known, reply, stopped, flows, names, count = {}, { 'entered' }, {}, {}, {}, #ARGV / 3
for place = 1, count do
  flows[place], names[place] = ARGV[3 * place - 2], node_of(ARGV[3 * place - 2], ARGV[3 * place - 1])
end
meet(known, keys, flows)
fetch(keys, 'nodes', names)
local roots, texts, word_of, bytes = redis.call('HLEN', headers) > 0 and {}, {}, {}, 0
if roots then
  for place = 1, count do roots[place] = string.match(flows[place], '^[^/]*') end
  fetch(keys, 'headers', roots)
end

-- The word of a node that may begin. A child has the headers of the instance around it.
local function go(root)
  local text = read(keys, 'headers', root)
  if not text then return 'go' end
  if not word_of[root] then
    if #texts > 0 and bytes + #text > NARROW_BYTES then return 'later' end
    bytes, texts[#texts + 1] = bytes + #text, text
    word_of[root] = 'go ' .. #texts
  end
  return word_of[root]
end

for place = 1, count do
  local one, name = known[flows[place]], names[place]
  local state = goes_on(one, ARGV[3 * place]) and read(keys, 'nodes', name)
  local is_sent = state and string.sub(state, 1, 1) == 'o'
  reply[place + 1] = is_sent and not one.stopping and (roots and go(roots[place]) or 'go') or 'stale'
  if is_sent and one.stopping then stopped[#stopped + 1] = { one, ARGV[3 * place - 1], name } end
end
for at, text in ipairs(texts) do reply[count + 1 + at] = text end
local opened, budget, touched, seen, _, now_ms = { later = {} }, a_budget(), {}, {}, now_us()
if #stopped > 0 then
  expect_types({}, {}, { value, output, errors, input, cursor, grow, meta }, { completed, failed, cancelled, outbox })
  shrink_first('HDEL', output)
end
for _, found in ipairs(stopped) do
  local one, index, name = unpack(found)
  if not seen[name] then
    seen[name] = true
    end_node(keys, one, index, 'x', '', budget, now_ms, opened)
    touched[#touched + 1] = one
  end
end
end_or_keep_all(known, keys, touched, budget, now_ms, opened)
write_and_report(keys, opened, now_ms)
return add_news(reply, keys, opened, now_ms)
