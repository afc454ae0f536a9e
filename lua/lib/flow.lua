-- An instance of a workflow has a line in `head`: its run, how often it changed its place, how many of its nodes have
-- not ended, how many are open, its shape, and the first node that broke it, or '-'.

-- The node as `nodes`, `input` and `value` name it.
local function node_of(flow, index)
  return flow .. '/' .. index
end

-- The instance, read once a call into `known`; false where there is none that can be read.
local function instance_of(known, keys, flow)
  if known[flow] ~= nil then return known[flow] end
  local run, turn, live, out, digest, bad = string.match(redis.call('HGET', keys.head, flow) or '',
    '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+)$')
  local one = false
  if run then
    one = { flow = flow, run = tonumber(run), turn = tonumber(turn), live = tonumber(live), out = tonumber(out),
      digest = digest, bad = bad, runs = redis.call('ZSCORE', keys.running, flow),
      stopping = redis.call('HGET', keys.stopping, flow) }
    one.is_paused = not one.runs and redis.call('ZSCORE', keys.paused, flow)
    one.policy, one.output = string.match(redis.call('HGET', keys.shapes, digest .. '@') or '', '^%d+ (%l+) (%S+)$')
  end
  known[flow] = one
  return one
end

-- Whether handlers of this run may begin, and ends of them count.
local function goes_on(one, run)
  return one and (one.runs or one.is_paused) and one.run == tonumber(run)
end

-- Notes what is to be done, from this time on.
local function note(keys, now_ms, entry)
  redis.call('ZADD', keys.outbox, string.format('%d', now_ms), entry)
end

-- The record of a node: its flags, of which node its input is the value ('-': it has one of its own), its task, what
-- its dispatch sets, and its first dependents.
local function record_of(keys, one, index)
  local head, own, count, dependents = string.match(redis.call('HGET', keys.shapes, one.digest .. '/' .. index) or '',
    '^([^\n]*)\n([^\n]*)\n(%d+)(.*)$')
  if not head then return nil end
  local flags, source, task = string.match(head, '^(%S+) (%S+) (%S+)$')
  return { flags = flags or '-', source = source or '-', task = task or '', own = own, count = tonumber(count),
    dependents = dependents }
end

-- 500 of the dependents of a node, from one that is a multiple of that.
local function dependents_of(keys, one, index, record, from)
  local text, found = record.dependents, {}
  if from > 0 then text = redis.call('HGET', keys.shapes, one.digest .. '/' .. index .. '/' .. from / 500) or '' end
  for word in string.gmatch(text, '%d+') do found[#found + 1] = word end
  return found
end

-- What is to be sent of an open node: its task, what its dispatch sets, and where the payload is; nil where that cannot
-- be read.
local function sendable(keys, one, index)
  local record = record_of(keys, one, index)
  if not record or record.task == '' then return nil end
  local is_value = record.source ~= '-'
  local column, field = is_value and 'value' or 'input', node_of(one.flow, is_value and record.source or index)
  local bytes = redis.call('HSTRLEN', keys[column], field)
  if bytes == 0 and not is_value then return nil end
  return { one = one, index = index, task = record.task, own = record.own, column = column, field = field,
    bytes = bytes }
end

-- Nothing of the instance opens any more: it ends like this, `failed` or `cancelled` and why, once none is open.
local function stop(keys, one, how, now_ms)
  one.stopping = how
  redis.call('HSET', keys.stopping, one.flow, how)
  note(keys, now_ms, 'x ' .. one.flow .. '/' .. one.run)
  if one.is_paused then
    redis.call('ZREM', keys.paused, one.flow)
    redis.call('ZADD', keys.running, string.format('%d', now_ms), one.flow)
    one.turn, one.runs, one.is_paused = one.turn + 1, true, false
  end
end

-- How an instance ends of which something cannot be read that it needs.
local UNREADABLE = 'failed {"code":"corrupt","message":"the graph, or the state of a node, cannot be read"}'

-- Opens a node whose inputs are there. Returns whether it is open: where it cannot be sent, its instance stops.
local function open_node(keys, one, index, now_ms, opened)
  local send = sendable(keys, one, index)
  if not send then
    stop(keys, one, UNREADABLE, now_ms)
    return false
  end
  one.out = one.out + 1
  note(keys, now_ms, 's ' .. node_of(one.flow, index) .. '/' .. one.run)
  opened[#opened + 1] = send
  return true
end

-- Goes on from ended nodes to their dependents: { node, whether it completed, from which dependent on }. What is over
-- the budget stays noted, with how far it has come. Where dependents cannot be read the instance stops: nobody else
-- would ever come to them.
local function visit(keys, one, ended, budget, now_ms, opened)
  local at = 1
  while at <= #ended do
    local index, is_completed, from = unpack(ended[at])
    local record, mark = record_of(keys, one, index), node_of(one.flow, index) .. '/' .. one.run
    if not record then return stop(keys, one, UNREADABLE, now_ms) end
    local count = record.count
    while from < count and budget.edges > 0 do
      local page, named, writes = dependents_of(keys, one, index, record, from - from % 500), {}, {}
      for offset = from % 500 + 1, math.min(#page, from % 500 + budget.edges) do
        named[#named + 1] = node_of(one.flow, page[offset])
      end
      if #named == 0 then return stop(keys, one, UNREADABLE, now_ms) end
      local states = redis.call('HMGET', keys.nodes, unpack(named))
      for place, state in ipairs(states) do
        local dependent = page[from % 500 + place]
        local kind, need, left = string.match(state or '', '^([pP]) (%d+) (%d+)$')
        if kind then
          need, left = tonumber(need), left - 1
          if is_completed or kind == 'P' then need = math.max(0, need - 1) end
          local now = kind .. ' ' .. need .. ' ' .. left
          if need == 0 and one.runs and not one.stopping then
            if open_node(keys, one, dependent, now_ms, opened) then now = 'o' end
          elseif left < need then
            now, one.live = 's', one.live - 1
            ended[#ended + 1] = { dependent, false, 0 }
          end
          writes[#writes + 1], writes[#writes + 2] = named[place], now
        elseif not string.match(state or '', '^[cfgosx]') and not one.stopping then
          stop(keys, one, UNREADABLE, now_ms)
        end
      end
      if #writes > 0 then redis.call('HSET', keys.nodes, unpack(writes)) end
      from, budget.edges = from + #named, budget.edges - #named
    end
    if from < count then
      redis.call('HSET', keys.cursor, mark, from .. (is_completed and ' c' or ' -'))
      note(keys, now_ms, 'v ' .. mark)
      opened.later[#opened.later + 1] = mark
    elseif ended[at][4] then
      redis.call('HDEL', keys.cursor, mark)
      redis.call('ZREM', keys.outbox, 'v ' .. mark)
    end
    at = at + 1
  end
end

-- Writes the line of the instance.
local function write_head(keys, one)
  redis.call('HSET', keys.head, one.flow, string.format('%d %d %d %d %s %s', one.run, one.turn, math.max(0, one.live),
    math.max(0, one.out), one.digest, one.bad))
end

-- Ends the instance if nothing of it can go on, and writes its head.
local function end_or_keep(keys, one, now_ms)
  local is_over = one.runs and (one.live <= 0 or one.stopping and one.out <= 0)
  if is_over then
    local word, why = string.match(one.stopping or '', '^(%l+) (.*)$')
    if one.stopping and not word then word = 'failed' end
    local output = one.output and one.output ~= '-' and one.output
    if not word then
      word = one.bad == '-' and 'completed' or 'failed'
      if word == 'completed' and output and redis.call('HGET', keys.nodes, node_of(one.flow, output)) ~= 'c' then
        -- What it was to answer is missing.
        word, one.bad = 'failed', output
      end
    end
    local place = word == 'completed' and keys.completed or word == 'cancelled' and keys.cancelled or keys.failed
    redis.call('ZREM', keys.running, one.flow)
    redis.call('ZADD', place, string.format('%d', now_ms), one.flow)
    if word == 'completed' then
      local value = output and redis.call('HGET', keys.value, node_of(one.flow, output))
      if value then redis.call('HSET', keys.output, one.flow, value) end
    elseif why and why ~= '' then
      redis.call('HSET', keys.error, one.flow, why)
    end
    redis.call('HDEL', keys.stopping, one.flow)
    redis.call('ZREM', keys.outbox, 'x ' .. one.flow .. '/' .. one.run, 'o ' .. one.flow .. '/' .. one.run)
    one.turn, one.runs, one.stopping = one.turn + 1, false, false
  end
  write_head(keys, one)
end

-- A node ended: what becomes of its instance where it did not complete.
local function break_by(keys, one, index, record, now_ms)
  if one.stopping or record and string.find(record.flags, 'o', 1, true) then return end
  if one.bad == '-' then one.bad = tostring(index) end
  if one.policy == 'cancel' then
    stop(keys, one, 'failed ', now_ms)
  elseif one.policy == 'pause' and one.runs then
    redis.call('ZREM', keys.running, one.flow)
    redis.call('ZADD', keys.paused, string.format('%d', now_ms), one.flow)
    one.turn, one.runs, one.is_paused = one.turn + 1, false, true
  end
end

-- The words of the reply for opened nodes: instance, node, run, task, what its dispatch sets, 'here' and the payload,
-- or in which column it is and under which field, of those that are over 512 KiB in all.
local function add_opened(reply, keys, opened)
  local bytes = 0
  for _, send in ipairs(opened) do
    bytes = bytes + send.bytes
    local where, payload = send.column, send.field
    if bytes <= LARGE then where, payload = 'here', redis.call('HGET', keys[where], payload) or 'null' end
    for _, word in ipairs({ send.one.flow, send.index, send.one.run, send.task, send.own, where, payload }) do
      reply[#reply + 1] = tostring(word)
    end
  end
end

-- The same behind the nodes from which there is more to visit.
local function add_news(reply, keys, opened)
  reply[#reply + 1] = #opened.later
  for _, mark in ipairs(opened.later) do reply[#reply + 1] = mark end
  add_opened(reply, keys, opened)
end
