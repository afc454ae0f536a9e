-- `instances` has a line per instance:
-- run; turn (how often it changed its place); live nodes (not ended); open nodes; shape (digest of the graph);
-- the first node that broke it, or '-'; the time before which none of its jobs may run (ms; 0: not known);
-- for a child that has ended also how: c, f or x (completed, failed, cancelled).
-- The child that runs as a node has the id <instance>/<node>.<run>. A child that has ended is in no place.

local LINE = '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+) ?(%d*) ?([cfx]?)$'

-- The field of a node in `nodes`, `input` and `value`.
local function node_of(flow, index)
  return flow .. '/' .. index
end

-- Reads the instances that are not in `known` yet; false for one that is missing or unreadable.
local function meet(known, keys, flows)
  local fresh = {}
  for at = 1, #flows do
    local flow = flows[at]
    if known[flow] == nil then
      known[flow] = false
      fresh[#fresh + 1] = flow
    end
  end
  if #fresh == 0 then return end
  fetch(keys, 'instances', fresh)
  fetch(keys, 'stopping', fresh)
  local runs = redis.call('ZMSCORE', keys.running, unpack(fresh))
  for place = 1, #fresh do
    local flow = fresh[place]
    local run, turn, live, out, digest, bad, due, over = string.match(read(keys, 'instances', flow) or '', LINE)
    if run then
      local one = { flow = flow, run = run, turn = turn, live = tonumber(live), out = tonumber(out), digest = digest,
        bad = bad, due = due ~= '' and tonumber(due) or 0, over = over, runs = runs[place],
        stopping = read(keys, 'stopping', flow) }
      one.is_paused = not one.runs and redis.call('ZSCORE', keys.paused, flow)
      if string.find(flow, '/', 1, true) then
        one.parent, one.node, one.parent_run = string.match(flow, '^(.+)/(%d+)%.(%d+)$')
      end
      one.policy, one.output = string.match(read(keys, 'shapes', digest .. '@') or '', '^%d+ (%l+) (%S+)$')
      known[flow] = one
    end
  end
end

-- The number of nodes of a graph, by its record; nil if that cannot be read. A start writes at most 10,000
-- (`MOST_NODES`): a larger number is damage, and a loop over it would block the server.
local function count_of_nodes(record)
  local count = tonumber(string.match(record or '', '^%d+'))
  return count and count <= 10000 and count or nil
end

-- The instance, read once per call; false if it is missing or unreadable.
local function instance_of(known, keys, flow)
  meet(known, keys, { flow })
  return known[flow]
end

-- Whether handlers of this run may begin and ends of its nodes count. A run is text: numbers are slow to format.
local function goes_on(one, run)
  return one and (one.runs or one.is_paused) and one.run == run
end

-- How a node ended, by how its child ended.
local LETTERS = { completed = 'c', failed = 'f', cancelled = 'x' }

-- How the instance ended; nil if it has not.
local function ended_in(keys, one)
  for _, place in ipairs({ 'completed', 'failed', 'cancelled' }) do
    if one.parent and one.over == LETTERS[place] then return place end
    if not one.parent and redis.call('ZSCORE', keys[place], one.flow) then return place end
  end
  return nil
end

-- Buffers the words of one event about a node or instance, to be reported after all writes.
local function tell(keys, kind, words)
  local told = keys.told or {}
  local list = told[kind] or {}
  list[#list + 1], told[kind], keys.told = words, list, told
end

-- Adds an entry to the outbox, due at this time.
local function note(now_ms, entry)
  put('outbox', entry, now_ms)
end

-- The record of a node: its flags ('o': optional, 'g': a graph), the node whose value is its input ('-': none), its
-- task, its dispatch options, and its first dependents. Nodes with the same record share a table.
local parsed_records, records_of = {}, pages()
local function record_of(keys, one, index)
  local records = records_of[one.digest]
  if records[index] then return records[index] end
  local text = read(keys, 'shapes', one.digest .. '/' .. index) or ''
  local record = parsed_records[text]
  if not record then
    local head, own, count, dependents = string.match(text, '^([^\n]*)\n([^\n]*)\n(%d+)(.*)$')
    if not head then return nil end
    local flags, source, task = string.match(head, '^(%S+) (%S+) (%S+)$')
    record = { flags = flags or '-', source = source or '-', task = task or '', own = own, count = tonumber(count),
      dependents = dependents }
    parsed_records[text] = record
  end
  records[index] = record
  return record
end

-- Parses the state of a node. If it waits: `kind`, how many inputs must still complete (`need`), how many have not
-- ended (`left`). `is_known` is unset if the state cannot be read. Nodes in the same state share a table, until a
-- second input of one ends. `waiting` has the states that inputs have changed in this call: they become text once.
local parsed_states, waiting = {}, {}
local function waits_of(keys, name)
  if waiting[name] then return waiting[name] end
  local state = read(keys, 'nodes', name) or ''
  local waits = parsed_states[state]
  if not waits then
    local kind, need, left = string.match(state, '^([pP]) (%d+) (%d+)$')
    waits = { kind = kind, need = tonumber(need), left = tonumber(left),
      is_known = kind or string.match(state, '^[cfgosx]') }
    parsed_states[state] = waits
  end
  return waits
end

-- The state of a waiting node after one more input has ended, and whether that counts as completed.
local function after_input(name, waits, is_counted)
  local need, left = waits.need, waits.left - 1
  if is_counted and need > 0 then need = need - 1 end
  if waits.is_own then
    waits.need, waits.left = need, left
    return waits
  end
  if waiting[name] then return { kind = waits.kind, need = need, left = left, is_known = true, is_own = true } end
  local place = is_counted and 'counted' or 'not_counted'
  local after = waits[place]
  if not after then
    after = { kind = waits.kind, need = need, left = left, is_known = true }
    waits[place] = after
  end
  return after
end

-- Sets the state of a node that still waits.
local function keep_waiting(name, waits)
  waiting[name] = waits
end

-- Sets the state of a node that waits no longer.
local function set_state(name, state)
  waiting[name] = nil
  write('nodes', name, state)
end

-- Writes the states of the nodes that still wait.
local function write_waiting()
  for name, waits in pairs(waiting) do
    write('nodes', name, string.format('%s %d %d', waits.kind, waits.need, waits.left))
  end
end

-- Up to 500 dependents of a node, from number `from`, a multiple of 500.
local function dependents_of(keys, one, index, record, from)
  if from == 0 and record.first then return record.first end
  local text, found = record.dependents, {}
  if from > 0 then text = read(keys, 'shapes', one.digest .. '/' .. index .. '/' .. from / 500) or '' end
  for word in string.gmatch(text, '%d+') do found[#found + 1] = word end
  if from == 0 then record.first = found end
  return found
end

-- Whether the node is open: its job was sent, or its graph runs.
local function is_open(state)
  local kind = state and string.sub(state, 1, 1)
  return kind == 'o' or kind == 'g'
end

-- What to send for an open node: its name, also with its run (`mark`), its task ('@': a graph, which runs as a child),
-- its dispatch options, and where its payload or graph is. Returns nil if that cannot be read.
local function sendable(keys, one, index, state)
  local record = record_of(keys, one, index)
  if not record or record.task == '' then return nil end
  local task, own, column, source = record.task, record.own, 'input', index
  if record.source ~= '-' then column, source = 'value', record.source end
  if string.sub(state, 1, 1) == 'g' then
    -- A graph that a job returned uses the policy of the instance.
    if task ~= '@' then own, column, source = one.policy or '', 'grow', index end
    task = '@'
  end
  local field = node_of(one.flow, source)
  local told = known_value(column, field)
  local bytes = told and #told or told == nil and redis.call('HSTRLEN', keys[column], field) or 0
  if bytes == 0 and column ~= 'value' then return nil end
  local name = column == 'value' and node_of(one.flow, index) or field
  local mark = name .. '/' .. one.run
  return { one = one, index = index, name = name, mark = mark, task = task, own = own, column = column, field = field,
    bytes = bytes }
end

-- Stops the instance: no node opens any more. When none is open it ends by `how`: `failed` or `cancelled`, and why.
local function stop(keys, one, how, now_ms)
  one.stopping = how
  keys.stopped = keys.stopped or {}
  table.insert(keys.stopped, one)
  write('stopping', one.flow, how)
  note(now_ms, 'x ' .. one.flow .. '/' .. one.run)
  if one.is_paused then
    put('paused', one.flow, false)
    put('running', one.flow, now_ms)
    -- While the instance was paused, this field said by whom, and why.
    write('errors', one.flow, false)
    one.turn, one.runs, one.is_paused = one.turn + 1, true, false
  end
end

-- The failure of a node whose child was cancelled, and of one whose child has an output node that did not run.
local CANCELLED = '{"code":"cancelled","message":"its workflow was stopped"}'
local SKIPPED = '{"code":"skipped","message":"its output node did not run"}'

-- How an instance ends if something that it needs cannot be read.
local UNREADABLE = 'failed {"code":"corrupt","message":"the graph, or the state of a node, cannot be read"}'

-- The failure of a node whose own state cannot be read.
local CORRUPT = '{"code":"corrupt","message":"its state cannot be read"}'

-- Whether a node of the graph has an invalid state, which would never change.
local function is_damaged(keys, one, index, state)
  local is_one = string.match(state, '^[og]%d*$') or string.match(state, '^[cfsx]$')
    or string.match(state, '^[pP] %d+ %d+$')
  return not is_one and record_of(keys, one, index) ~= nil
end
