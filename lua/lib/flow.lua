-- An instance of a workflow has a line in `head`: its run, how often it changed its place, how many of its nodes have
-- not ended, how many are open, its shape, the first node that broke it, or '-', before when none of its jobs may run
-- (ms; 0: not known) and, of a child that ended, how: c, f or x. The child that a node runs as
-- has the id <instance>/<node>.<run>, and stands in no place once it has ended.

local LINE = '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+) ?(%d*) ?([cfx]?)$'

-- The node as `nodes`, `input` and `value` name it.
local function node_of(flow, index)
  return flow .. '/' .. index
end

-- Reads those of the instances into `known` that are not there yet: false where there is none that can be read.
local function meet(known, keys, flows)
  local fresh = {}
  for _, flow in ipairs(flows) do
    if known[flow] == nil then
      known[flow] = false
      fresh[#fresh + 1] = flow
    end
  end
  if #fresh == 0 then return end
  fetch(keys, 'head', fresh)
  fetch(keys, 'stopping', fresh)
  local runs = redis.call('ZMSCORE', keys.running, unpack(fresh))
  for place, flow in ipairs(fresh) do
    local run, turn, live, out, digest, bad, due, over = string.match(read(keys, 'head', flow) or '', LINE)
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

-- How many nodes the graphs of this shape have, by its record; nil where that cannot be read. No start writes more than
-- 10,000 (`MOST_NODES`): a larger number is damage, and a loop over it would block the server.
local function count_of_nodes(record)
  local count = tonumber(string.match(record or '', '^%d+'))
  return count and count <= 10000 and count or nil
end

-- The instance, read once a call into `known`; false where there is none that can be read.
local function instance_of(known, keys, flow)
  meet(known, keys, { flow })
  return known[flow]
end

-- Whether handlers of this run may begin, and ends of them count.
local function goes_on(one, run)
  return one and (one.runs or one.is_paused) and one.run == tonumber(run)
end

-- How a node has ended whose child ended so.
local LETTERS = { completed = 'c', failed = 'f', cancelled = 'x' }

-- How the instance ended; nil where it did not.
local function ended_in(keys, one)
  for _, place in ipairs({ 'completed', 'failed', 'cancelled' }) do
    if one.parent and one.over == LETTERS[place] then return place end
    if not one.parent and redis.call('ZSCORE', keys[place], one.flow) then return place end
  end
  return nil
end

-- Notes what is told of nodes and instances when all is written: each time the words of one event.
local function tell(keys, kind, words)
  keys.told = keys.told or {}
  keys.told[kind] = keys.told[kind] or {}
  table.insert(keys.told[kind], words)
end

-- Notes what is to be done, from this time on.
local function note(keys, now_ms, entry)
  put(keys, 'outbox', entry, now_ms)
end

-- The record of a node: its flags ('o': optional, 'g': a graph), of which node its input is the value ('-': it has one
-- of its own), its task, what its dispatch sets, and its first dependents.
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

-- Whether the node waits for its inputs, how many of them must still complete, and how many have not ended; of one
-- whose state cannot be read all that is false.
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

-- 500 of the dependents of a node, from one that is a multiple of that.
local function dependents_of(keys, one, index, record, from)
  if from == 0 and record.first then return record.first end
  local text, found = record.dependents, {}
  if from > 0 then text = read(keys, 'shapes', one.digest .. '/' .. index .. '/' .. from / 500) or '' end
  for word in string.gmatch(text, '%d+') do found[#found + 1] = word end
  if from == 0 then record.first = found end
  return found
end

-- Whether the node is open: its job is sent, or its graph runs.
local function is_open(state)
  return state and string.match(state, '^[og]') ~= nil
end

-- What is to be sent of an open node: its task ('@': a graph, which runs as a child), what its dispatch sets, and where
-- the payload, or the graph, is; nil where that cannot be read.
local function sendable(keys, one, index, state)
  local record = record_of(keys, one, index)
  if not record or record.task == '' then return nil end
  local task, own, column, source = record.task, record.own, 'input', index
  if record.source ~= '-' then column, source = 'value', record.source end
  if string.sub(state, 1, 1) == 'g' then
    -- A graph that its job returned goes by the policy of the instance.
    if task ~= '@' then own, column, source = one.policy or '', 'grow', index end
    task = '@'
  end
  local field = node_of(one.flow, source)
  local told = page_of(keys, 'known', column)[field]
  local bytes = told and #told or told == nil and redis.call('HSTRLEN', keys[column], field) or 0
  if bytes == 0 and column ~= 'value' then return nil end
  return { one = one, index = index, task = task, own = own, column = column, field = field, bytes = bytes }
end

-- Nothing of the instance opens any more: it ends like this, `failed` or `cancelled` and why, once none is open.
local function stop(keys, one, how, now_ms)
  one.stopping = how
  keys.stopped = keys.stopped or {}
  table.insert(keys.stopped, one)
  write(keys, 'stopping', one.flow, how)
  note(keys, now_ms, 'x ' .. one.flow .. '/' .. one.run)
  if one.is_paused then
    put(keys, 'paused', one.flow, false)
    put(keys, 'running', one.flow, now_ms)
    -- Who had paused it, and why.
    write(keys, 'error', one.flow, false)
    one.turn, one.runs, one.is_paused = one.turn + 1, true, false
  end
end

-- What a node says that ran as a child: one that was cancelled, and one that was to answer with the value of a node
-- that did not run.
local CANCELLED = '{"code":"cancelled","message":"its workflow was stopped"}'
local SKIPPED = '{"code":"skipped","message":"the node whose value it answers did not run"}'

-- How an instance ends of which something cannot be read that it needs.
local UNREADABLE = 'failed {"code":"corrupt","message":"the graph, or the state of a node, cannot be read"}'

-- What a node says whose own state cannot be read.
local CORRUPT = '{"code":"corrupt","message":"its state cannot be read"}'

-- Whether the state of a node of the graph is none that there is: nothing would ever come of it.
local function is_damaged(keys, one, index, state)
  local is_one = string.match(state, '^[og]%d*$') or string.match(state, '^[cfsx]$')
    or string.match(state, '^[pP] %d+ %d+$')
  return not is_one and record_of(keys, one, index) ~= nil
end

-- How many nodes a call opens or skips, which is what costs most in it.
local OPENS = 100

-- How much a call does: edges that it follows, and nodes that it opens or skips.
local function a_budget()
  return { edges = 1000, opens = OPENS }
end

-- Opens a node whose inputs are there. Returns its state: nil where it cannot be sent, and its instance stops.
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

-- Reads ahead the states of these nodes, which have records of these names, and the records of those that may open
-- behind so many ends, as many as are to.
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

-- Reads ahead most of what follows from the ends of these nodes ({ instance, number }).
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

-- Goes on from ended nodes to their dependents: { node, whether it completed, from which dependent on }. What is over
-- the budget stays noted, with how far it has come. Where dependents cannot be read the instance stops: nobody else
-- would ever come to them.
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
            -- What follows from it is read for it alone: it costs what an opened one does.
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

-- Writes the line of the instance.
local function write_head(keys, one)
  local more = one.over ~= '' and string.format(' %d %s', one.due, one.over) or one.due > 0
    and string.format(' %d', one.due) or ''
  write(keys, 'head', one.flow, string.format('%d %d %d %d %s %s', one.run, one.turn, math.max(0, one.live),
    math.max(0, one.out), one.digest, one.bad) .. more)
end

-- The instance stands where those are that have ended so.
local function place_ended(keys, flow, word, now_ms)
  put(keys, (word == 'completed' or word == 'cancelled') and word or 'failed', flow, now_ms)
end

-- Ends an instance whose line ({ run, turn, shape }, as far as it can be read) or graph cannot be read: nothing of it
-- could ever go on. A child goes, and is started anew.
local function give_up(keys, flow, line, now_ms)
  keys.corrupt = (keys.corrupt or 0) + 1
  put(keys, 'running', flow, false)
  put(keys, 'paused', flow, false)
  write(keys, 'stopping', flow, false)
  if string.find(flow, '/', 1, true) then return write(keys, 'head', flow, false) end
  place_ended(keys, flow, 'failed', now_ms)
  write(keys, 'error', flow, string.match(UNREADABLE, ' (.*)$'))
  write(keys, 'head', flow, string.format('%s %d 0 0 %s -', line[1], line[2] + 1, line[3]))
  tell(keys, 'ended', 'failed ' .. flow .. '/' .. line[1])
end

-- Ends the instance if nothing of it can go on, and writes its head. Of a child that ended: how, and what it said.
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
        -- What it was to answer is missing.
        word, one.bad = 'failed', output
      end
    end
    put(keys, 'running', one.flow, false)
    tell(keys, 'ended', word .. ' ' .. one.flow .. '/' .. one.run)
    local value = word == 'completed' and output and read(keys, 'value', node_of(one.flow, output))
    if one.parent then
      how = LETTERS[word] or 'f'
      -- One that answers nothing lets the node keep what its job returned; what answers no value answers null.
      said, one.over = how == 'x' and CANCELLED or value or how == 'c' and output and 'null' or '', how
      if how == 'f' then
        said = why and why ~= '' and why or read(keys, 'value', node_of(one.flow, one.bad)) or SKIPPED
      end
    else
      place_ended(keys, one.flow, word, now_ms)
      if value then write(keys, 'output', one.flow, value) end
    end
    if why and why ~= '' then write(keys, 'error', one.flow, why) end
    write(keys, 'stopping', one.flow, false)
    put(keys, 'outbox', 'x ' .. one.flow .. '/' .. one.run, false)
    put(keys, 'outbox', 'o ' .. one.flow .. '/' .. one.run, false)
    write(keys, 'cursor', one.flow .. '/' .. one.run, false)
    one.turn, one.runs, one.stopping = one.turn + 1, false, false
  end
  write_head(keys, one)
  return how, said
end

-- A node ended: what becomes of its instance where it did not complete.
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

-- An open node ended like this, and said this: what waits for it goes on.
local function end_node(keys, one, index, how, said, budget, now_ms, opened)
  local name = node_of(one.flow, index)
  write(keys, 'nodes', name, how)
  if said ~= '' then write(keys, 'value', name, said) end
  local mark = name .. '/' .. one.run
  put(keys, 'outbox', 's ' .. mark, false)
  tell(keys, 'node', how .. ' ' .. mark)
  one.live, one.out = one.live - 1, one.out - 1
  if how ~= 'c' then break_by(keys, one, index, record_of(keys, one, index), now_ms) end
  -- Nothing opens in one that stops.
  if not one.stopping then visit(keys, one, { { index, how == 'c', 0 } }, budget, now_ms, opened) end
end

-- Counts what has not ended, and what is open, of an instance with damaged nodes: what these were is not known. It
-- costs as much as there are nodes, which nothing else does.
local function recount(keys, one)
  local count = count_of_nodes(read(keys, 'shapes', one.digest .. '@')) or 0
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

-- The job of a node returned a value and a graph: the node ends when that has ended, which runs as a child.
local function grow_node(keys, one, index, said, head, size, now_ms, opened)
  local name = node_of(one.flow, index)
  write(keys, 'grow', name, string.sub(said, head + size + 1))
  if size > 0 then write(keys, 'value', name, string.sub(said, head + 1, head + size)) end
  write(keys, 'nodes', name, 'g')
  note(keys, now_ms, 's ' .. name .. '/' .. one.run)
  opened[#opened + 1] = sendable(keys, one, index, 'g')
end

-- Whether there is no such child, nor ever was: one that cannot be read goes no further.
local function is_gone(known, keys, child)
  local one = instance_of(known, keys, child)
  if one and (one.runs or one.is_paused) then return false end
  put(keys, 'running', child, false)
  return true
end

-- Ends what is over of these instances, and with a child the node that ran as it: in the same call, so that nobody has
-- to hear of it.
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

-- The words of the reply for opened nodes: instance, node, run, task, what its dispatch sets, in how many ms it may
-- run, 'here' and the payload, or in which column it is and under which field, of those that are over 512 KiB in all.
local function add_opened(reply, keys, opened, now_ms)
  local bytes, here = 0, {}
  for _, send in ipairs(opened) do
    bytes = bytes + send.bytes
    send.is_here = bytes <= LARGE
    if send.is_here then
      here[send.column] = here[send.column] or {}
      table.insert(here[send.column], send.field)
    end
  end
  for column, fields in pairs(here) do fetch(keys, column, fields) end
  for _, send in ipairs(opened) do
    local where, payload = send.column, send.field
    if send.is_here then where, payload = 'here', read(keys, where, payload) or 'null' end
    local one, at = send.one, #reply
    one.wait = one.wait or string.format('%d', math.max(0, one.due - now_ms))
    reply[at + 1], reply[at + 2], reply[at + 3] = one.flow, tostring(send.index), tostring(one.run)
    reply[at + 4], reply[at + 5], reply[at + 6] = send.task, send.own, one.wait
    reply[at + 7], reply[at + 8] = where, payload
  end
end

-- The same behind the entries of the outbox that are to be carried out at once: nodes from which there is more to
-- visit, and instances that stop and have open nodes.
local function add_news(reply, keys, opened, now_ms)
  local count = #reply + 1
  reply[count] = 0
  for _, mark in ipairs(opened.later) do reply[#reply + 1] = 'v ' .. mark end
  for _, one in ipairs(keys.stopped or {}) do
    if one.runs then reply[#reply + 1] = 'x ' .. one.flow .. '/' .. one.run end
  end
  reply[count] = #reply - count
  add_opened(reply, keys, opened, now_ms)
end
