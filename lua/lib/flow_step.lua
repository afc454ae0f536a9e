-- How many nodes a call opens or skips: these cost most, and a call should take at most 2 ms.
local OPENS = 64

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
  opened[#opened + 1] = send
  return send.task == '@' and 'g' or 'o'
end

-- Reads ahead the states of these nodes, and at most `most` records of those that may open after this number of ends.
local function foresee(keys, named, records, ends, most)
  fetch(keys, 'nodes', named)
  local opening = {}
  for place = 1, #named do
    if #opening >= most then break end
    local waits = waits_of(keys, named[place])
    if waits.kind and waits.need <= ends then opening[#opening + 1] = records[place] end
  end
  fetch(keys, 'shapes', opening)
end

-- Reads ahead most of what the ends of these nodes need: `indexes` of the instances `ones`.
local function foresee_all(keys, ones, indexes, budget)
  local records, named, dependents, foreseen = {}, {}, {}, {}
  for place = 1, #ones do records[place] = ones[place].digest .. '/' .. indexes[place] end
  fetch(keys, 'shapes', records)
  for place = 1, #ones do
    local one = ones[place]
    local record = record_of(keys, one, indexes[place])
    -- Nodes of an instance with the same record have the same dependents.
    if record and foreseen[one] ~= record then
      foreseen[one] = record
      local page, digest = dependents_of(keys, one, indexes[place], record, 0), one.digest .. '/'
      for at = 1, math.min(#page, 2 * budget.opens - #named) do
        named[#named + 1], dependents[#dependents + 1] = node_of(one.flow, page[at]), digest .. page[at]
      end
    end
  end
  foresee(keys, named, dependents, #ones, budget.opens)
end

-- Reads ahead what the dependents at these places of a page need, unless an earlier call has.
local function foresee_page(keys, one, page, first, last, most)
  if known_value('nodes', node_of(one.flow, page[last])) ~= nil then return end
  local named, records = {}, {}
  for place = first, last do
    named[#named + 1], records[#records + 1] = node_of(one.flow, page[place]), one.digest .. '/' .. page[place]
  end
  foresee(keys, named, records, 1, most)
end

-- Updates one dependent of an ended node. Returns whether it is skipped.
local function update_dependent(keys, one, dependent, is_completed, budget, now_ms, opened)
  local name = node_of(one.flow, dependent)
  local waits = waits_of(keys, name)
  if not waits.kind then
    if not waits.is_known and not one.stopping then stop(keys, one, UNREADABLE, now_ms) end
    return false
  end
  waits = after_input(name, waits, is_completed or waits.kind == 'P')
  if waits.need == 0 and one.runs and not one.stopping then
    local state = open_node(keys, one, dependent, now_ms, opened)
    if state then set_state(name, state) else keep_waiting(name, waits) end
    budget.opens = budget.opens - 1
  elseif waits.left < waits.need then
    -- A skipped node costs as much as an opened one: its dependents are read for it alone.
    set_state(name, 's')
    one.live, budget.opens = one.live - 1, budget.opens - 1
    tell(keys, 'node', 's ' .. name .. '/' .. one.run)
    return true
  else
    keep_waiting(name, waits)
  end
  return false
end

-- Updates the dependents of an ended node, from number `from` on, and those of the nodes that are skipped therefore.
-- What exceeds the budget stays in the outbox, with its progress; `is_later` says that it was there. If dependents
-- cannot be read the instance stops: no call reaches them.
local function visit(keys, one, index, is_completed, from, is_later, budget, now_ms, opened)
  local skipped, at = {}, 0
  while index do
    local record = record_of(keys, one, index)
    if not record then return stop(keys, one, UNREADABLE, now_ms) end
    local count = record.count
    while from < count and budget.edges > 0 and budget.opens > 0 do
      local place, room = from % 500 + 1, budget.edges < budget.opens and budget.edges or budget.opens
      local page = dependents_of(keys, one, index, record, from - place + 1)
      local last = place - 1 + room < #page and place - 1 + room or #page
      if last < place then return stop(keys, one, UNREADABLE, now_ms) end
      if last > place then foresee_page(keys, one, page, place, last, budget.opens) end
      while place <= last and budget.opens > 0 do
        if update_dependent(keys, one, page[place], is_completed, budget, now_ms, opened) then
          skipped[#skipped + 1] = page[place]
        end
        place, from, budget.edges = place + 1, from + 1, budget.edges - 1
      end
    end
    if from < count then
      local mark = node_of(one.flow, index) .. '/' .. one.run
      write('cursor', mark, from .. (is_completed and ' c' or ' -'))
      note(now_ms, 'v ' .. mark)
      opened.later[#opened.later + 1] = mark
    elseif is_later then
      local mark = node_of(one.flow, index) .. '/' .. one.run
      write('cursor', mark, false)
      put('outbox', 'v ' .. mark, false)
    end
    at = at + 1
    index, is_completed, from, is_later = skipped[at], false, 0, false
  end
end

-- Writes the line of the instance in `instances`.
local function write_head(one)
  local more = one.over ~= '' and string.format(' %d %s', one.due, one.over) or one.due > 0
    and string.format(' %d', one.due) or ''
  write('instances', one.flow, string.format('%s %d %d %d %s %s', one.run, one.turn, math.max(0, one.live),
    math.max(0, one.out), one.digest, one.bad) .. more)
end

-- Puts an ended instance into the set for its outcome.
local function place_ended(flow, word, now_ms)
  put((word == 'completed' or word == 'cancelled') and word or 'failed', flow, now_ms)
end

-- Ends an instance whose line ({ run, turn, shape }, as far as it can be read) or graph cannot be read: it could never
-- continue. A child is removed, and started again.
local function give_up(keys, flow, line, now_ms)
  keys.corrupt = (keys.corrupt or 0) + 1
  put('running', flow, false)
  put('paused', flow, false)
  write('stopping', flow, false)
  if string.find(flow, '/', 1, true) then return write('instances', flow, false) end
  place_ended(flow, 'failed', now_ms)
  write('errors', flow, string.match(UNREADABLE, ' (.*)$'))
  write('instances', flow, string.format('%s %d 0 0 %s -', line[1], line[2] + 1, line[3]))
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
    put('running', one.flow, false)
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
      place_ended(one.flow, word, now_ms)
      if value then write('output', one.flow, value) end
    end
    if why and why ~= '' then write('errors', one.flow, why) end
    write('stopping', one.flow, false)
    put('outbox', 'x ' .. one.flow .. '/' .. one.run, false)
    put('outbox', 'o ' .. one.flow .. '/' .. one.run, false)
    write('cursor', one.flow .. '/' .. one.run, false)
    one.turn, one.runs, one.stopping = one.turn + 1, false, false
  end
  write_head(one)
  return how, said
end

-- Applies the policy of the instance after a node that did not complete.
local function break_by(keys, one, index, record, now_ms)
  if one.stopping or record and string.find(record.flags, 'o', 1, true) then return end
  if one.bad == '-' then one.bad = tostring(index) end
  if one.policy == 'cancel' then
    stop(keys, one, 'failed ', now_ms)
  elseif one.policy == 'pause' and one.runs then
    put('running', one.flow, false)
    put('paused', one.flow, now_ms)
    tell(keys, 'paused', one.flow .. '/' .. one.run)
    one.turn, one.runs, one.is_paused = one.turn + 1, false, true
  end
end

-- Ends an open node with this outcome and value, and updates its dependents.
local function end_node(keys, one, index, how, said, budget, now_ms, opened)
  local name = node_of(one.flow, index)
  write('nodes', name, how)
  if said ~= '' then write('value', name, said) end
  local mark = name .. '/' .. one.run
  put('outbox', 's ' .. mark, false)
  tell(keys, 'node', how .. ' ' .. mark)
  one.live, one.out = one.live - 1, one.out - 1
  if how ~= 'c' then break_by(keys, one, index, record_of(keys, one, index), now_ms) end
  -- Nothing opens in an instance that stops.
  if not one.stopping then visit(keys, one, index, how == 'c', 0, false, budget, now_ms, opened) end
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
  write('grow', name, string.sub(said, head + size + 1))
  if size > 0 then write('value', name, string.sub(said, head + 1, head + size)) end
  write('nodes', name, 'g')
  note(now_ms, 's ' .. name .. '/' .. one.run)
  opened[#opened + 1] = sendable(keys, one, index, 'g')
end

-- Whether the child is missing, ended or unreadable. If so, it also leaves `running`.
local function is_gone(known, keys, child)
  local one = instance_of(known, keys, child)
  if one and (one.runs or one.is_paused) then return false end
  put('running', child, false)
  return true
end

-- Ends those of the instances that are over. A child that ends also ends the node of its parent, in the same call.
local function end_or_keep_all(known, keys, touched, budget, now_ms, opened)
  local at = 1
  while at <= #touched do
    local one = touched[at]
    if one.runs then put('running', one.flow, now_ms) end
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
