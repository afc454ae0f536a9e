-- The parts of settle_plain.

-- How many jobs may run, how many run once `done` of them have ended, and how many of the wanted ones may begin. Nil
-- where settle must decide: with a rate, while the task rests, or if jobs are wanted ahead of their slots.
local function room_of(limits, full, locks, done, want, slots)
  local most = tonumber(string.match(limits or '', '^([1-9]%d*) 0 '))
  if not most or (full or 'running') ~= 'running' or slots < want then return nil end
  local running = redis.call('HLEN', locks) - done
  return most, running, math.max(0, math.min(want, most - running))
end

-- Whether the first `known` locks are those of the tokens that follow the ids in ARGV, and the heads of the list are
-- jobs that wait: each once, with a payload, without a lock, and not completed.
local function are_sound(heads, tokens, known, payloads, scores)
  for at = 1, known do
    if tokens[at] ~= ARGV[9 + known + at] then return false end
  end
  local seen = {}
  for at = 1, #heads do
    if tokens[known + at] or not payloads[at] or scores[at] or seen[heads[at]] then return false end
    seen[heads[at]] = true
  end
  return true
end

-- Puts completed jobs into their set, or removes them (`keeps` is '0'). Pairs of position and value begin in ARGV at
-- `pairs_at`. Nodes of workflows also enter the outbox, if the task has one; they are kept until they are reported.
local function end_completed(completed, payload, columns, result, checkpoint, keeps, ids, time, pairs_at, outbox)
  local values, nodes = {}, {}
  for at = pairs_at, #ARGV, 2 do
    values[#values + 1], values[#values + 2] = ids[tonumber(ARGV[at])], ARGV[at + 1]
  end
  if outbox or keeps == '0' then
    -- Uses here columns nodes
    nodes = outbox and nodes_among(ids) or {}
    if keeps == '0' then
      local filled_columns = { payload, unpack(columns) }
      if #nodes == 0 then return remove_columns(filled_columns, ids) end
      ids, values = leave_nodes({ columns = filled_columns }, ids, values)
    end
  end
  if columns[checkpoint] then redis.call('HDEL', checkpoint, unpack(ids)) end
  if #values > 0 then redis.call('HSET', result, unpack(values)) end
  add_all(completed, time, ids)
  if #nodes > 0 then add_all(outbox, time, nodes) end
end

-- Returns what completed jobs change in `meta`: pairs of field and value.
local function news_of_completed(out, done, time, failing, broken_off)
  local news = { 'out', string.format('%d', (tonumber(out) or 0) + done), 'lastCompletedAt', time }
  if (failing or '0') ~= '0' then news[5], news[6] = 'failedSinceCompleted', '0' end
  if (broken_off or '0') ~= '0' then news[#news + 1], news[#news + 2] = 'brokenOffSinceCompleted', '0' end
  return news
end

-- Adds the words `since` of the first `count` starting jobs whose dispatch time is stored, as add_started does.
local function add_since(fields, jobs, times, done, count)
  local since = {}
  for at = 1, count do
    local time = string.match(times[at] or '', '^%d+$')
    if time then since[#since + 1] = jobs[done + at] .. ' ' .. time .. ' 0' end
  end
  add_words(fields, 'since', since)
end

-- How many claimed jobs begin, and how many of those have a slot; the same for jobs that were claimed before.
local function plan_of(words, want, claimed)
  if words == '' then return want, want, 0, 0 end
  redis.call('HLEN', claimed)
  local begin, slots, begins, begin_slots = string.match(words, '(%d+) (%d+) (%d+) (%d+)')
  return tonumber(begin), tonumber(slots), tonumber(begins), tonumber(begin_slots)
end

-- Begins jobs that were claimed before: positions `done` + 1 to `known`. The first `slots` of them have a slot. Their
-- tokens are in ARGV; in a token the fence follows the worker.
local function begin_claimed(claimed, early, jobs, done, known, slots, worker_length)
  redis.call('HDEL', claimed, unpack(jobs, done + 1, known))
  local marks = {}
  for at = done + slots + 1, known do
    marks[#marks + 1], marks[#marks + 2] = jobs[at], string.sub(ARGV[9 + known + at], worker_length + 2)
  end
  if #marks > 0 then redis.call('HSET', early, unpack(marks)) end
end

-- Marks claimed jobs without a slot: those that begin (up to position `begin`), and those that do not begin yet.
local function mark_ahead(early, claimed, heads, slots, begin, fence, fields)
  mark_jobs(early, heads, slots, begin, fence)
  mark_jobs(claimed, heads, begin, #heads, fence)
  add_words(fields, 'claimed', { unpack(heads, begin + 1) })
end
