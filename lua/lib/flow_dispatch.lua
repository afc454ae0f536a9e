-- The keys of a task to which a call can dispatch nodes. They follow the keys of the script, task by task.
local TASK_KEYS = { 'payload', 'completed', 'failed', 'cancelled', 'wait', 'meta', 'events', 'wake', 'dispatched_at',
  'outbox' }

-- The tasks whose keys follow the first `count` keys. `words` has the wire version, the workflow, and for each task its
-- name and how many of the ended nodes are its jobs: they come in the order of the tasks.
local function tasks_of(count, words)
  local wire, workflow, rest = string.match(words or '', '^(%d+) (%S+)(.*)$')
  local tasks = { wire = wire, prefix = '~' .. (workflow or '') .. '/', by_name = {} }
  for name, ended in string.gmatch(rest or '', '(%S+) (%d+)') do
    local task = { ended = tonumber(ended), sends = {} }
    for at, key in ipairs(TASK_KEYS) do task[key] = KEYS[count + at] end
    tasks[#tasks + 1], tasks.by_name[name], count = task, task, count + #TASK_KEYS
  end
  return tasks
end

-- At maxmemory the call dispatches nothing, as `dispatch` is refused then: the nodes stay in the outbox. Redis says so
-- only before the first write of a script.
local function skip_at_maxmemory(keys, tasks)
  local said = tasks[1] and redis.pcall('ZADD', keys.outbox, 'XX', '0', '') or {}
  if type(said) == 'table' and said.err then
    -- Any other error is raised by the same command.
    if not string.find(said.err, 'OOM', 1, true) then redis.call('ZADD', keys.outbox, 'XX', '0', '') end
    tasks.by_name = {}
  end
end

-- What `meta` says of a task that takes plain jobs. Nil for another one, for one whose keys have other types, and if
-- our user may not write both its jobs and the states of their nodes.
local function facts_of(keys, task, wire)
  local hashes, ended = { task.payload, task.dispatched_at, task.meta }, { task.completed, task.failed, task.cancelled }
  if not pcall(expect_types, { task.wait }, {}, hashes, ended) then return nil end
  local may = pcall(must_be_allowed_all, 'RPUSH', { task.wait })
    and pcall(must_be_allowed_all, 'HSET', { task.payload, keys.nodes })
  if not may then return nil end
  local facts = redis.call('HMGET', task.meta, 'eventMode', 'events', 'in', 'largest', 'wire', 'partitions',
    'priority', 'paused', 'full')
  local written_by, parts, priority = unpack(facts, 5, 7)
  local is_plain = written_by == wire and (parts or '1') == '1' and (priority or 'normal') == 'normal'
  return is_plain and facts or nil
end

-- Reads what the nodes to send get as input.
local function fetch_inputs(keys, sends)
  local fields = {}
  for at = 1, #sends do
    local send = sends[at]
    local named = fields[send.column] or {}
    named[#named + 1], fields[send.column] = send.field, named
  end
  for column, named in pairs(fields) do fetch(keys, column, named) end
end

-- Dispatches the nodes to a task, except those whose jobs exist. Returns how many.
local function dispatch_to(keys, task, facts, prefix, now_ms)
  local ids, fields, payloads, times, fresh, largest, sends = {}, {}, {}, {}, {}, 0, task.sends
  for at = 1, #sends do ids[at] = prefix .. sends[at].mark end
  fetch_inputs(keys, sends)
  local stored = redis.call('HMGET', task.payload, unpack(ids))
  local terminal = terminal_of({ task.completed, unpack(filled('ZCARD', task.failed, task.cancelled)) }, ids)
  local now, paused, count = string.format('%d', now_ms), facts[8], 0
  for at = 1, #sends do
    if not stored[at] and not terminal[at] then
      local send, id = sends[at], ids[at]
      local payload = read(keys, send.column, send.field) or 'null'
      payloads[2 * count + 1], payloads[2 * count + 2] = id, payload
      times[2 * count + 1], times[2 * count + 2] = id, now
      count = count + 1
      fresh[count], send.is_dispatched = id, true
      if #payload > largest then largest = #payload end
    end
  end
  if count == 0 then return 0 end
  redis.call('RPUSH', task.wait, unpack(fresh))
  redis.call('HSET', task.dispatched_at, unpack(times))
  redis.call('HSET', task.payload, unpack(payloads))
  count_new_jobs(task.meta, task.events, facts, fresh, largest, true, {})
  local full = facts[9]
  if not (paused or full == 'running' or rest_of(full, now_ms)) then ring_wake(task.wake) end
  return count
end

-- Dispatches the opened nodes that can be dispatched here, and leaves the others in `opened`. This comes before the
-- writes to the workflow: a job of a node that is not open does not run, but an open node without a job is lost.
-- Returns how many.
local function dispatch_opened(keys, tasks, opened, now_ms)
  local bytes, count, kept = 0, 0, 0
  if next(tasks.by_name) then try_writes(keys) end
  for at = 1, #opened do
    local send = opened[at]
    local task, one = tasks.by_name[send.task], send.one
    local is_due = one.runs and not one.stopping and one.due <= now_ms
    -- The server may be unable to send a large payload. The caller finds that, and fails the node.
    local fits = send.bytes <= NARROW_BYTES and bytes + send.bytes <= LARGE
    if task and send.own == '' and is_due and fits and read(keys, 'nodes', send.name) == 'o' then
      bytes, task.sends[#task.sends + 1] = bytes + send.bytes, send
    end
  end
  for _, task in ipairs(tasks) do
    local facts = #task.sends > 0 and facts_of(keys, task, tasks.wire)
    if facts then count = count + dispatch_to(keys, task, facts, tasks.prefix, now_ms) end
  end
  for at = 1, count > 0 and #opened or 0 do
    local send = opened[at]
    opened[at] = nil
    if not send.is_dispatched then kept, opened[kept + 1] = kept + 1, send end
  end
  return count
end

-- Removes the ended nodes of flow_advance, by their names, from the outboxes of their tasks.
local function clear_outboxes(tasks, names)
  local place = 0
  for _, task in ipairs(tasks) do
    local ids = {}
    for at = 1, task.ended do ids[at] = tasks.prefix .. names[place + at] .. '/' .. ARGV[5 * (place + at) - 2] end
    if #ids > 0 then redis.pcall('ZREM', task.outbox, unpack(ids)) end
    place = place + task.ended
  end
end
