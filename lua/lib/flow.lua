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
  for _, flow in ipairs(flows) do
    if known[flow] == nil then
      known[flow] = false
      fresh[#fresh + 1] = flow
    end
  end
  if #fresh == 0 then return end
  fetch(keys, 'instances', fresh)
  fetch(keys, 'stopping', fresh)
  local runs = redis.call('ZMSCORE', keys.running, unpack(fresh))
  for place, flow in ipairs(fresh) do
    local run, turn, live, out, digest, bad, due, over = string.match(read(keys, 'instances', flow) or '', LINE)
    if run then
      local one = { flow = flow, run = tonumber(run), turn = tonumber(turn), live = tonumber(live), out = tonumber(out),
        digest = digest, bad = bad, due = tonumber(due) or 0, over = over, runs = runs[place],
        stopping = read(keys, 'stopping', flow) }
      one.is_paused = not one.runs and redis.call('ZSCORE', keys.paused, flow)
      one.parent, one.node, one.parent_run = string.match(flow, '^(.+)/(%d+)%.(%d+)$')
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

-- Whether handlers of this run may begin and ends of its nodes count.
local function goes_on(one, run)
  return one and (one.runs or one.is_paused) and one.run == tonumber(run)
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
  keys.told = keys.told or {}
  keys.told[kind] = keys.told[kind] or {}
  table.insert(keys.told[kind], words)
end

-- Adds an entry to the outbox, due at this time.
local function note(keys, now_ms, entry)
  put(keys, 'outbox', entry, now_ms)
end

-- The record of a node: its flags ('o': optional, 'g': a graph), the node whose value is its input ('-': none), its
-- task, its dispatch options, and its first dependents.
local function record_of(keys, one, index)
  local text, records = read(keys, 'shapes', one.digest .. '/' .. index) or '', page_of(keys, 'parsed', 'shapes')
  if records[text] then return records[text] end
  local head, own, count, dependents = string.match(text, '^([^\n]*)\n([^\n]*)\n(%d+)(.*)$')
  if not head then return nil end
  local flags, source, task = string.match(head, '^(%S+) (%S+) (%S+)$')
  local record = { flags = flags or '-', source = source or '-', task = task or '', own = own, count = tonumber(count),
    dependents = dependents }
  records[text] = record
  return record
end

-- Parses the state of a node. If it waits: `kind`, how many inputs must still complete (`need`), how many have not
-- ended (`left`). `is_known` is unset if the state cannot be read.
local function waits_of(keys, name)
  local state, states = read(keys, 'nodes', name) or '', page_of(keys, 'parsed', 'nodes')
  local waits = states[state]
  if not waits then
    local kind, need, left = string.match(state, '^([pP]) (%d+) (%d+)$')
    waits = { kind = kind, need = tonumber(need), left = tonumber(left),
      is_known = kind or string.match(state, '^[cfgosx]') }
    states[state] = waits
  end
  return waits
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
  return state and string.match(state, '^[og]') ~= nil
end

-- What to send for an open node: its task ('@': a graph, which runs as a child), its dispatch options, and where its
-- payload or graph is. Returns nil if that cannot be read.
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
  local told = page_of(keys, 'known', column)[field]
  local bytes = told and #told or told == nil and redis.call('HSTRLEN', keys[column], field) or 0
  if bytes == 0 and column ~= 'value' then return nil end
  return { one = one, index = index, task = task, own = own, column = column, field = field, bytes = bytes }
end

-- Stops the instance: no node opens any more. When none is open it ends by `how`: `failed` or `cancelled`, and why.
local function stop(keys, one, how, now_ms)
  one.stopping = how
  keys.stopped = keys.stopped or {}
  table.insert(keys.stopped, one)
  write(keys, 'stopping', one.flow, how)
  note(keys, now_ms, 'x ' .. one.flow .. '/' .. one.run)
  if one.is_paused then
    put(keys, 'paused', one.flow, false)
    put(keys, 'running', one.flow, now_ms)
    -- While the instance was paused, this field said by whom, and why.
    write(keys, 'errors', one.flow, false)
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

-- How many nodes a call opens or skips: these cost most.
local OPENS = 100

-- The budget of a call: edges to follow, and nodes to open or skip.
local function a_budget()
  return { edges = 1000, opens = OPENS }
end

-- Opens a node whose inputs are ready. Returns its new state; nil if it cannot be sent, which stops the instance.
local function open_node(keys, one, index, now_ms, opened)
  local send = sendable(keys, one, index, 'o')
  if not send then
    stop(keys, one, UNREADABLE, now_ms)
    return nil
  end
  one.out = one.out + 1
  note(keys, now_ms, 's ' .. one.flow .. '/' .. index .. '/' .. one.run)
  opened[#opened + 1] = send
  return send.task == '@' and 'g' or 'o'
end

-- Reads ahead the states of these nodes, and at most `most` records of those that may open after this number of ends.
local function foresee(keys, named, records, ends, most)
  fetch(keys, 'nodes', named)
  local opening = {}
  for place, name in ipairs(named) do
    if #opening >= most then break end
    local waits = waits_of(keys, name)
    if waits.kind and waits.need <= ends then opening[#opening + 1] = records[place] end
  end
  fetch(keys, 'shapes', opening)
end

-- Reads ahead most of what the ends of these nodes ({ instance, number }) need.
local function foresee_all(keys, ends, budget)
  local records, named, dependents = {}, {}, {}
  for place, ended in ipairs(ends) do records[place] = ended[1].digest .. '/' .. ended[2] end
  fetch(keys, 'shapes', records)
  for _, ended in ipairs(ends) do
    local one, record = ended[1], record_of(keys, ended[1], ended[2])
    for _, index in ipairs(record and dependents_of(keys, one, ended[2], record, 0) or {}) do
      if #named >= 2 * budget.opens then break end
      named[#named + 1], dependents[#dependents + 1] = node_of(one.flow, index), one.digest .. '/' .. index
    end
  end
  foresee(keys, named, dependents, #ends, budget.opens)
end

-- Updates the dependents of ended nodes: { node, whether it completed, first dependent to visit }. What exceeds the
-- budget stays in the outbox, with its progress. If dependents cannot be read the instance stops: no call reaches them.
local function visit(keys, one, ended, budget, now_ms, opened)
  local at = 1
  while at <= #ended do
    local index, is_completed, from = unpack(ended[at])
    local record = record_of(keys, one, index)
    if not record then return stop(keys, one, UNREADABLE, now_ms) end
    local count = record.count
    while from < count and budget.edges > 0 and budget.opens > 0 do
      local page, named, records = dependents_of(keys, one, index, record, from - from % 500), {}, {}
      for offset = from % 500 + 1, math.min(#page, from % 500 + math.min(budget.edges, budget.opens)) do
        named[#named + 1], records[#records + 1] = node_of(one.flow, page[offset]), one.digest .. '/' .. page[offset]
      end
      if #named == 0 then return stop(keys, one, UNREADABLE, now_ms) end
      foresee(keys, named, records, 1, budget.opens)
      for _, name in ipairs(named) do
        if budget.opens == 0 then break end
        local dependent, waits = page[from % 500 + 1], waits_of(keys, name)
        if waits.kind then
          local kind, need, left = waits.kind, waits.need, waits.left - 1
          if is_completed or kind == 'P' then need = math.max(0, need - 1) end
          local now = kind .. ' ' .. need .. ' ' .. left
          if need == 0 and one.runs and not one.stopping then
            now, budget.opens = open_node(keys, one, dependent, now_ms, opened) or now, budget.opens - 1
          elseif left < need then
            -- A skipped node costs as much as an opened one: its dependents are read for it alone.
            now, one.live, budget.opens = 's', one.live - 1, budget.opens - 1
            ended[#ended + 1] = { dependent, false, 0 }
            tell(keys, 'node', 's ' .. name .. '/' .. one.run)
          end
          write(keys, 'nodes', name, now)
        elseif not waits.is_known and not one.stopping then
          stop(keys, one, UNREADABLE, now_ms)
        end
        from, budget.edges = from + 1, budget.edges - 1
      end
    end
    local is_over = from >= count
    local mark = not (is_over and not ended[at][4]) and node_of(one.flow, index) .. '/' .. one.run
    if not is_over then
      write(keys, 'cursor', mark, from .. (is_completed and ' c' or ' -'))
      note(keys, now_ms, 'v ' .. mark)
      opened.later[#opened.later + 1] = mark
    elseif mark then
      write(keys, 'cursor', mark, false)
      put(keys, 'outbox', 'v ' .. mark, false)
    end
    at = at + 1
  end
end

-- Writes the line of the instance in `instances`.
local function write_head(keys, one)
  local more = one.over ~= '' and string.format(' %d %s', one.due, one.over) or one.due > 0
    and string.format(' %d', one.due) or ''
  write(keys, 'instances', one.flow, string.format('%d %d %d %d %s %s', one.run, one.turn, math.max(0, one.live),
    math.max(0, one.out), one.digest, one.bad) .. more)
end

-- Puts an ended instance into the set for its outcome.
local function place_ended(keys, flow, word, now_ms)
  put(keys, (word == 'completed' or word == 'cancelled') and word or 'failed', flow, now_ms)
end

-- Ends an instance whose line ({ run, turn, shape }, as far as it can be read) or graph cannot be read: it could never
-- continue. A child is removed, and started again.
local function give_up(keys, flow, line, now_ms)
  keys.corrupt = (keys.corrupt or 0) + 1
  put(keys, 'running', flow, false)
  put(keys, 'paused', flow, false)
  write(keys, 'stopping', flow, false)
  if string.find(flow, '/', 1, true) then return write(keys, 'instances', flow, false) end
  place_ended(keys, flow, 'failed', now_ms)
  write(keys, 'errors', flow, string.match(UNREADABLE, ' (.*)$'))
  write(keys, 'instances', flow, string.format('%s %d 0 0 %s -', line[1], line[2] + 1, line[3]))
  tell(keys, 'ended', 'failed ' .. flow .. '/' .. line[1])
end

-- Ends the instance if nothing of it can continue, and writes its head. Returns how a child ended, and its value.
local function end_or_keep(keys, one, now_ms)
  local how, said
  if one.runs and (one.live <= 0 or one.stopping and one.out <= 0) then
    local word, why = string.match(one.stopping or '', '^(%l+) (.*)$')
    if one.stopping and not word then word = 'failed' end
    if one.stopping == UNREADABLE then keys.corrupt = (keys.corrupt or 0) + 1 end
    local output = one.output and one.output ~= '-' and one.output
    if not word then
      word = one.bad == '-' and 'completed' or 'failed'
      if word == 'completed' and output and read(keys, 'nodes', node_of(one.flow, output)) ~= 'c' then
        -- The node whose value it should return did not complete.
        word, one.bad = 'failed', output
      end
    end
    put(keys, 'running', one.flow, false)
    tell(keys, 'ended', word .. ' ' .. one.flow .. '/' .. one.run)
    local value = word == 'completed' and output and read(keys, 'value', node_of(one.flow, output))
    if one.parent then
      how = LETTERS[word] or 'f'
      -- Without an output node the parent's node keeps the value of its job. An output node without a value gives null.
      said, one.over = how == 'x' and CANCELLED or value or how == 'c' and output and 'null' or '', how
      if how == 'f' then
        said = why and why ~= '' and why or read(keys, 'value', node_of(one.flow, one.bad)) or SKIPPED
      end
    else
      place_ended(keys, one.flow, word, now_ms)
      if value then write(keys, 'output', one.flow, value) end
    end
    if why and why ~= '' then write(keys, 'errors', one.flow, why) end
    write(keys, 'stopping', one.flow, false)
    put(keys, 'outbox', 'x ' .. one.flow .. '/' .. one.run, false)
    put(keys, 'outbox', 'o ' .. one.flow .. '/' .. one.run, false)
    write(keys, 'cursor', one.flow .. '/' .. one.run, false)
    one.turn, one.runs, one.stopping = one.turn + 1, false, false
  end
  write_head(keys, one)
  return how, said
end

-- Applies the policy of the instance after a node that did not complete.
local function break_by(keys, one, index, record, now_ms)
  if one.stopping or record and string.find(record.flags, 'o', 1, true) then return end
  if one.bad == '-' then one.bad = tostring(index) end
  if one.policy == 'cancel' then
    stop(keys, one, 'failed ', now_ms)
  elseif one.policy == 'pause' and one.runs then
    put(keys, 'running', one.flow, false)
    put(keys, 'paused', one.flow, now_ms)
    tell(keys, 'paused', one.flow .. '/' .. one.run)
    one.turn, one.runs, one.is_paused = one.turn + 1, false, true
  end
end

-- Ends an open node with this outcome and value, and updates its dependents.
local function end_node(keys, one, index, how, said, budget, now_ms, opened)
  local name = node_of(one.flow, index)
  write(keys, 'nodes', name, how)
  if said ~= '' then write(keys, 'value', name, said) end
  local mark = name .. '/' .. one.run
  put(keys, 'outbox', 's ' .. mark, false)
  tell(keys, 'node', how .. ' ' .. mark)
  one.live, one.out = one.live - 1, one.out - 1
  if how ~= 'c' then break_by(keys, one, index, record_of(keys, one, index), now_ms) end
  -- Nothing opens in an instance that stops.
  if not one.stopping then visit(keys, one, { { index, how == 'c', 0 } }, budget, now_ms, opened) end
end

-- Recounts live and open nodes of an instance with damaged nodes, whose earlier states are unknown. The cost grows with
-- the number of nodes, as nothing else here does.
local function recount(keys, one, now_ms)
  local count = count_of_nodes(read(keys, 'shapes', one.digest .. '@'))
  if not count then return stop(keys, one, UNREADABLE, now_ms) end
  one.live, one.out = 0, 0
  for from = 0, count - 1, 500 do
    local names = {}
    for index = from, math.min(count, from + 500) - 1 do names[#names + 1] = node_of(one.flow, index) end
    fetch(keys, 'nodes', names)
    for _, name in ipairs(names) do
      local state = read(keys, 'nodes', name) or ''
      if not string.match(state, '^[cfsx]') then one.live = one.live + 1 end
      if is_open(state) then one.out = one.out + 1 end
    end
  end
end

-- The job of a node returned a value and a graph: the graph runs as a child, and the node ends when the child ends.
local function grow_node(keys, one, index, said, head, size, now_ms, opened)
  local name = node_of(one.flow, index)
  write(keys, 'grow', name, string.sub(said, head + size + 1))
  if size > 0 then write(keys, 'value', name, string.sub(said, head + 1, head + size)) end
  write(keys, 'nodes', name, 'g')
  note(keys, now_ms, 's ' .. name .. '/' .. one.run)
  opened[#opened + 1] = sendable(keys, one, index, 'g')
end

-- Whether the child is missing, ended or unreadable. If so, it also leaves `running`.
local function is_gone(known, keys, child)
  local one = instance_of(known, keys, child)
  if one and (one.runs or one.is_paused) then return false end
  put(keys, 'running', child, false)
  return true
end

-- Ends those of the instances that are over. A child that ends also ends the node of its parent, in the same call.
local function end_or_keep_all(known, keys, touched, budget, now_ms, opened)
  local at = 1
  while at <= #touched do
    local one = touched[at]
    if one.runs then put(keys, 'running', one.flow, now_ms) end
    local how, said = end_or_keep(keys, one, now_ms)
    local parent = how and instance_of(known, keys, one.parent)
    local state = goes_on(parent, one.parent_run) and read(keys, 'nodes', node_of(one.parent, one.node))
    if state and string.sub(state, 1, 1) == 'g' then
      end_node(keys, parent, one.node, how, said, budget, now_ms, opened)
      touched[#touched + 1] = parent
    end
    at = at + 1
  end
end

-- Adds eight words per opened node to the reply: instance, node, run, task ('@': its payload is a graph, which the
-- caller starts as a child), dispatch options (JSON or ''; for a graph that a job returned, the policy of the
-- instance), ms until it may run, then 'here' and the payload. A payload that would exceed 16 KiB of payloads in all is
-- not copied: the last two are then its column, and its field and size.
local function add_opened(reply, keys, opened, now_ms)
  local bytes, here = 0, {}
  for _, send in ipairs(opened) do
    send.is_here = bytes + send.bytes <= NARROW_BYTES
    if send.is_here then
      bytes = bytes + send.bytes
      here[send.column] = here[send.column] or {}
      table.insert(here[send.column], send.field)
    end
  end
  for column, fields in pairs(here) do fetch(keys, column, fields) end
  for _, send in ipairs(opened) do
    local where, payload = send.column, send.field .. ' ' .. send.bytes
    if send.is_here then where, payload = 'here', read(keys, send.column, send.field) or 'null' end
    local one, at = send.one, #reply
    one.wait = one.wait or string.format('%d', math.max(0, one.due - now_ms))
    reply[at + 1], reply[at + 2], reply[at + 3] = one.flow, tostring(send.index), tostring(one.run)
    reply[at + 4], reply[at + 5], reply[at + 6] = send.task, send.own, one.wait
    reply[at + 7], reply[at + 8] = where, payload
  end
  return reply
end

-- Like add_opened, but first the number of outbox entries to carry out at once, and those entries: nodes with more
-- dependents to visit, and stopping instances with open nodes.
local function add_news(reply, keys, opened, now_ms)
  local count = #reply + 1
  reply[count] = 0
  for _, mark in ipairs(opened.later) do reply[#reply + 1] = 'v ' .. mark end
  for _, one in ipairs(keys.stopped or {}) do
    if one.runs then reply[#reply + 1] = 'x ' .. one.flow .. '/' .. one.run end
  end
  reply[count] = #reply - count
  return add_opened(reply, keys, opened, now_ms)
end
