-- Moves delayed jobs that are due to the back of their own lists, a bounded number of them.
local function promote_due(delayed, lists, priority, now_ms)
  local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now_ms, 'LIMIT', 0, 200)
  if #due > 0 then
    redis.call('ZREM', delayed, unpack(due))
    back_to_wait('RPUSH', lists, priority, due)
  end
end

-- The columns that a run needs, for the jobs that have any: {position, attempt, stalledCount, options, dispatchedAt}.
local function extras_of(columns, ids)
  local extras = {}
  if #ids == 0 or redis.call('EXISTS', unpack(columns)) == 0 then return extras end
  local values = {}
  for c, column in ipairs(columns) do values[c] = redis.call('HMGET', column, unpack(ids)) end
  for i = 1, #ids do
    if values[1][i] or values[2][i] or values[3][i] or values[4][i] then
      extras[#extras + 1] = { i, values[1][i] or '0', values[2][i] or '0', values[3][i] or '', values[4][i] or '' }
    end
  end
  return extras
end

-- Reads the heads of the lists, first list first, and sorts what is there without writing: jobs that may run, jobs
-- whose counters are no numbers, ids without a payload, and ids to skip (locked, terminal, or twice in the batch).
-- Every id that was looked at is to be popped: `popped` counts them by list.
local function next_jobs(lists, want, payload, locks, terminal_sets, extra_columns)
  local found = { ids = {}, payloads = {}, extras = {}, corrupt = {}, ghosts = {}, popped = {}, seen = 0 }
  local heads = {}
  for i, list in ipairs(lists) do
    local ids = want > #heads and redis.call('LRANGE', list, 0, want - #heads - 1) or {}
    found.popped[i] = #ids
    for j = 1, #ids do heads[#heads + 1] = ids[j] end
  end
  found.seen = #heads
  if #heads == 0 then return found end
  local payloads = redis.call('HMGET', payload, unpack(heads))
  local locked = redis.call('HMGET', locks, unpack(heads))
  local terminal = terminal_of(terminal_sets[1], terminal_sets[2], terminal_sets[3], heads)
  local extra_at = {}
  for _, extra in ipairs(extras_of(extra_columns, heads)) do extra_at[extra[1]] = extra end
  local seen = {}
  for i, id in ipairs(heads) do
    if not (seen[id] or locked[i] or terminal[i]) then
      local extra = extra_at[i]
      if not payloads[i] then
        found.ghosts[#found.ghosts + 1] = id
      elseif extra and not (count_of(extra[2]) and count_of(extra[3])) then
        found.corrupt[#found.corrupt + 1] = id
      else
        local at = #found.ids + 1
        found.ids[at], found.payloads[at] = id, payloads[i]
        if extra then
          extra[1] = at
          found.extras[#found.extras + 1] = extra
        end
      end
    end
    seen[id] = true
  end
  return found
end

-- Pops what next_jobs looked at. A job with a broken counter is failed, an id without payload loses what is left of it.
local function pop_jobs(lists, found, columns, failed, keep, now_ms, errors, fields)
  for i, popped in ipairs(found.popped) do
    if popped > 0 then redis.call('LPOP', lists[i], popped) end
  end
  if #found.ghosts > 0 then
    remove_columns(columns, found.ghosts)
    add_words(fields, 'removed', found.ghosts)
  end
  if #found.corrupt > 0 then
    local values, words = {}, {}
    for i, id in ipairs(found.corrupt) do
      values[2 * i - 1], values[2 * i] = id, error_json('corrupt', 'a counter of the job is no number')
      words[i] = id .. ' corrupt'
    end
    finish(failed, keep, now_ms, columns, found.corrupt, errors, values)
    add_words(fields, 'failed', words)
  end
end

-- The words of the `started` event, and of `restarted` (id, failed runs, stalls) for jobs that ran before.
local function add_started(fields, claimed)
  local first, again, extra_at = {}, {}, {}
  for _, extra in ipairs(claimed.extras) do extra_at[extra[1]] = extra end
  for i, id in ipairs(claimed.ids) do
    local extra = extra_at[i]
    if extra and (extra[2] ~= '0' or extra[3] ~= '0') then
      again[#again + 1] = id .. ' ' .. extra[2] .. ' ' .. extra[3]
    else
      first[#first + 1] = id
    end
  end
  add_words(fields, 'started', first)
  add_words(fields, 'restarted', again)
end
