-- The words of the event `outcome_rejected`: id, fence and outcome of each job that the worker does not hold (any
-- more). A report that does not end a run is not an outcome.
local function refused_words(ids, fences, others, begins_at, held)
  local is_held, words = {}, {}
  for _, place in ipairs(held) do is_held[place] = true end
  for place, id in ipairs(ids) do
    local kind = others[place] and ARGV[others[place] + 2] or 'completed'
    if not is_held[place] and kind ~= 'unstart' and (others[place] or place < begins_at) then
      words[#words + 1] = id .. ' ' .. fences[place] .. ' ' .. kind
    end
  end
  return words
end

-- Reads what a worker reports and sorts it, without writing: the argument `reports` of settle, which begins at position
-- `at` of ARGV. `count` has the numbers of its parts, and `count.ran` a word per completed job. `early` counts the last
-- ones of `begins`, which have no slot. A pending cancel takes precedence over every outcome but that of a hook;
-- without `cancelling` none is pending. The jobs in `all` are no longer held. `rests` has the jobs whose handlers were
-- rate limited, and for how long. A rest counts even if its job was cancelled or lost.
local function read_outcomes(at, count, locks, cancelling, worker)
  local out = { all = {}, lost = {}, completed = {}, results = {}, failed = {}, retry = {}, requeue = {}, begins = {},
    begin_fences = {}, unstart = {}, snooze = {}, undecodable = {}, ran = count.ran, cancelled = {}, reasons = {},
    taken = {}, refused = {}, expired = 0, hooked = {}, hook_retry = {}, drop = {}, ended = 0, early = 0,
    begun_early = {}, rests = {} }
  local completed_count, begin_count = count.completed, count.begins
  local fences_at = at + completed_count
  local values_at = fences_at + completed_count
  local begins_at = values_at + 2 * count.values
  local others_at = begins_at + 2 * begin_count
  local ids, fences, others = { unpack(ARGV, at, fences_at - 1) }, { unpack(ARGV, fences_at, values_at - 1) }, {}
  for begin = begins_at, begins_at + begin_count - 1 do
    ids[#ids + 1], fences[#fences + 1] = ARGV[begin], ARGV[begin + begin_count]
  end
  for other = others_at, #ARGV, 6 do
    local place = #ids + 1
    ids[place], fences[place], others[place] = ARGV[other], ARGV[other + 1], other
    local rest = ARGV[other + 2] == 'requeue' and tonumber(ARGV[other + 4]) or 0
    if rest > 0 then out.rests[#out.rests + 1] = { id = ids[place], ms = rest } end
  end
  local held, lost = held_by(locks, worker, ids, fences)
  if #held == completed_count and #ids == completed_count and not cancelling then
    -- Usually all jobs have completed: one list for both fields, to which nothing is added.
    out.all, out.completed = ids, ids
    for value = values_at, begins_at - 1, 2 do
      out.results[#out.results + 1], out.results[#out.results + 2] = ids[tonumber(ARGV[value])], ARGV[value + 1]
    end
    return out
  end
  local reasons = cancelling and cancel_reasons(cancelling, ids) or {}
  out.lost = lost
  if #lost > 0 then out.refused = refused_words(ids, fences, others, completed_count + 1, held) end
  local values, all, completed = {}, out.all, out.completed
  for value = values_at, begins_at - 1, 2 do values[tonumber(ARGV[value])] = ARGV[value + 1] end
  for _, place in ipairs(held) do
    local id, reason, other = ids[place], reasons[place], others[place]
    local kind = other and ARGV[other + 2]
    if reason and kind ~= 'hooked' and kind ~= 'hook_retry' then
      all[#all + 1], out.cancelled[#out.cancelled + 1] = id, id
      out.reasons[#out.reasons + 1], out.taken[#out.taken + 1] = reason, fences[place]
    elseif place <= completed_count then
      all[#all + 1], completed[#completed + 1] = id, id
      if values[place] then
        out.results[#out.results + 1] = id
        out.results[#out.results + 1] = values[place]
      end
    elseif other then
      if kind ~= 'unstart' then all[#all + 1] = id end
      local group = out[kind]
      group[#group + 1] = { id = id, attempt = ARGV[other + 3], detail = ARGV[other + 4], error = ARGV[other + 5],
        fence = fences[place] }
    else
      out.begins[#out.begins + 1], out.begin_fences[#out.begin_fences + 1] = id, fences[place]
      if place > completed_count + count.with_slot then out.early = out.early + 1 end
    end
  end
  if #out.completed < completed_count then
    -- Leaves out lost and cancelled jobs.
    local times, own = {}, {}
    for word in string.gmatch(count.ran, '%S+') do times[#times + 1] = word end
    for _, place in ipairs(held) do
      if place <= completed_count and not reasons[place] then own[#own + 1] = times[place] end
    end
    out.ran = table.concat(own, ' ')
  end
  return out
end

-- Returns the ids of a group of outcomes, the fields of its attempt and error columns, and the words of its event.
local function ids_of(group)
  local ids, attempts, values, words = {}, {}, {}, {}
  for index, outcome in ipairs(group) do
    ids[index] = outcome.id
    attempts[2 * index - 1], attempts[2 * index] = outcome.id, outcome.attempt
    values[2 * index - 1], values[2 * index] = outcome.id, outcome.error
    words[index] = outcome.id .. ' ' .. outcome.detail
  end
  return ids, attempts, values, words
end

-- Delays the jobs, writes a column value for each, and adds the words of the event: id, value, delay, and the rest.
local function put_off(group, name, column, delayed, enqueued_at, now_ms, fields)
  local entries, words = {}, {}
  local ids, values = ids_of(group)
  redis.call('HSET', column, unpack(values))
  record_since(enqueued_at, ids, now_ms)
  for _, outcome in ipairs(group) do
    entries[#entries + 1] = string.format('%d', now_ms + string.match(outcome.detail, '^%d+'))
    entries[#entries + 1] = outcome.id
    words[#words + 1] = outcome.id .. ' ' .. outcome.attempt .. ' ' .. outcome.detail
  end
  redis.call('ZADD', delayed, unpack(entries))
  add_words(fields, name, words)
end

-- Returns those of the requeued jobs that broke off: they had begun for certain, and were not rate limited.
-- `early` is given if it holds anything.
local function begun_among(group, claimed, early)
  if #group == 0 then return {} end
  local ids, begun = ids_of(group), {}
  local doubts = early and redis.call('HMGET', early, unpack(ids)) or {}
  for place, mark in ipairs(redis.call('HMGET', claimed, unpack(ids))) do
    local has_begun = not (mark or doubts[place] == group[place].fence)
    if has_begun and (tonumber(group[place].detail) or 0) == 0 then begun[#begun + 1] = ids[place] end
  end
  return begun
end

-- Releases the jobs of these outcomes. A job that completed, failed or was delayed has begun: it is not in `claimed`.
local function let_go(out, places, has_early, has_candidates)
  if has_candidates then redis.call('SREM', places.candidates, unpack(out.all)) end
  redis.call('HDEL', places.locks, unpack(out.all))
  if #out.requeue + #out.cancelled + #out.taken + #out.drop > 0 then
    redis.call('HDEL', places.claimed, unpack(out.all))
  end
  if has_early then redis.call('HDEL', places.early, unpack(out.all)) end
  if #out.cancelled > 0 then redis.call('HDEL', places.cancelling, unpack(out.cancelled)) end
end

-- Writes how jobs ended, and the words of their events.
local function record_ends(out, places, how, fields)
  if #out.completed > 0 then
    local ran
    if how.hook then
      ran = {}
      for word in string.gmatch(out.ran, '%S+') do ran[#ran + 1] = word end
    end
    finish(places, how, 'completed', out.completed, out.results, false, ran)
    -- A completed job does not resume from its checkpoint.
    if places.filled[places.checkpoint] then redis.call('HDEL', places.checkpoint, unpack(out.completed)) end
    if out.ran ~= '' and not how.hook then add_words(fields, 'ran', { out.ran }) end
    add_finished(fields, how, 'completed', out.completed, out.completed)
  end
  if #out.failed > 0 then
    local ids, attempts, values, words = ids_of(out.failed)
    local ran = {}
    for index, outcome in ipairs(out.failed) do ran[index] = string.match(outcome.detail, '(%S+)$') end
    if how.hook or how.keep.failed ~= '0' then redis.call('HSET', places.attempt, unpack(attempts)) end
    finish(places, how, 'failed', ids, values, false, ran)
    add_finished(fields, how, 'failed', ids, words)
  end
  if #out.cancelled > 0 then
    local values = {}
    for index, id in ipairs(out.cancelled) do
      values[2 * index - 1], values[2 * index] = id, error_json('cancelled', out.reasons[index])
    end
    finish(places, how, 'cancelled', out.cancelled, values)
    add_finished(fields, how, 'cancelled', out.cancelled, out.cancelled)
  end
end

-- Writes the outcomes, group by group, and the words of their events.
local function record_outcomes(out, places, how, fields)
  if #out.begins > 0 then redis.call('HDEL', places.claimed, unpack(out.begins)) end
  if #out.begun_early > 0 then redis.call('HSET', places.early, unpack(out.begun_early)) end
  if #out.unstart > 0 then
    local ids, marks = ids_of(out.unstart), {}
    for index, outcome in ipairs(out.unstart) do
      marks[2 * index - 1], marks[2 * index] = outcome.id, outcome.fence
    end
    redis.call('HDEL', places.early, unpack(ids))
    redis.call('HSET', places.claimed, unpack(marks))
    add_words(fields, 'claimed', ids)
  end
  if #out.all + #out.lost == 0 then return end
  local delayed, since, now_ms = places.delayed, places.enqueued_at, how.now_ms
  add_words(fields, 'outcome_rejected', out.refused)
  record_ends(out, places, how, fields)
  if #out.drop > 0 then
    local ids = ids_of(out.drop)
    remove_columns(places.columns, ids)
    add_words(fields, 'removed', ids)
  end
  if #out.retry > 0 then
    local _, _, values = ids_of(out.retry)
    redis.call('HSET', places.errors, unpack(values))
    put_off(out.retry, 'retrying', places.attempt, delayed, since, now_ms, fields)
  end
  if #out.snooze > 0 then put_off(out.snooze, 'snoozed', places.snoozes, delayed, since, now_ms, fields) end
  if #out.undecodable > 0 then
    local _, _, values = ids_of(out.undecodable)
    redis.call('HSET', places.errors, unpack(values))
    put_off(out.undecodable, 'undecodable', places.snoozes, delayed, since, now_ms, fields)
  end
  if #out.requeue > 0 then
    local ids = ids_of(out.requeue)
    back_to_wait('LPUSH', places.lists, places.priority, ids, since, now_ms)
    add_words(fields, 'requeued', ids)
  end
end
