-- The options of a task that decide about stalled jobs: fields of `meta`.
local STALL_OPTIONS = { 'declaredAt', 'paused', 'eventMode', 'hook', 'grace', 'onCrash', 'maxCount', 'maxCountSet',
  'retry', 'keepCompleted', 'keepFailed', 'keepCancelled' }

-- Adds to `how` what these options say. `how.crash` is what the task does after a crash: `mode`, `max` (stalls that a
-- job survives), `max_set` (`max` was set for this task) and `policy`.
local function with_options(task, how)
  how.crash = { mode = task.onCrash, max = tonumber(task.maxCount) or 1, max_set = task.maxCountSet == '1',
    policy = object_of(task.retry) }
  how.keep = { completed = task.keepCompleted, failed = task.keepFailed, cancelled = task.keepCancelled }
  how.hook, how.paused, how.event_mode = task.hook == '1', task.paused, task.eventMode
  return how
end

-- Returns up to `limit` candidates from the cursor on, each once; or those of the named ids that are candidates. SSCAN
-- returns a small set whole, whatever its COUNT: ids past the limit then wait for the next round from 0.
local function next_candidates(candidates, cursor, limit, named)
  if #named > 0 then
    local found, ids, taken = redis.call('SMISMEMBER', candidates, unpack(named)), {}, {}
    for at, id in ipairs(named) do
      if found[at] == 1 and not taken[id] then ids[#ids + 1], taken[id] = id, true end
    end
    return { ids = ids, cursor = cursor }
  end
  local scanned = redis.call('SSCAN', candidates, cursor, 'COUNT', limit)
  local ids, seen = {}, {}
  for _, id in ipairs(scanned[2]) do
    if not seen[id] and #ids < limit then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
  return { ids = ids, cursor = scanned[1] }
end

-- Decides about each job by the table in sweep.lua, without writing. `places` has the keys by name, and all columns as
-- `columns`. `how` says who decides and why: `verdict`, `by` (a person), and `said` (what the error says about the
-- worker). The verdict `requeue` leaves out jobs that have begun; `spare` requeues them without counting a stall.
-- `how.grace` is how long jobs stay parked, by phase; all were silent at least since `how.since`.
--
-- In the result, `words` are those of the event, four per job: id, count, action, holder ('-': none). `resolved` also
-- has the fence ('0': none). `parked` are the parked ids, and `decided` those that are neither parked nor left out.
local function decide(ids, places, terminal_places, how)
  local verdict, by, crash = how.verdict, how.by, how.crash
  local found = { dropped = {}, failed = {}, errors = {}, cancelled = {}, reasons = {}, recovered = {}, retried = {},
    crashes = {}, attempts = {}, delays = {}, counted = {}, holders = {}, words = {}, resolved = {}, failed_words = {},
    retried_words = {}, requeued = {}, times = {}, fences = {}, broken = {}, faults = {}, broken_words = {}, hooks = {},
    outcomes = {}, finals = {}, final_words = {}, final_fields = {}, decided = {}, parked = {}, marks = {}, kept = {},
    failed_runs = 0, began_to_fail = 0, broken_off = 0 }
  if #ids == 0 then return found end
  expect_types({}, {}, { places.lane_of }, { places.turns, places.lane_held })
  local function read(column) return redis.call('HMGET', column, unpack(ids)) end
  local tokens, reasons, counts, own_max = read(places.locks), read(places.cancelling), read(places.stalled_count),
    read(places.max_count)
  local any_claimed = redis.call('HLEN', places.claimed) > 0
  local any_early = redis.call('HLEN', places.early) > 0
  local claimed, early = any_claimed and read(places.claimed) or {}, any_early and read(places.early) or {}
  local recovered = (any_claimed or any_early) and read(places.recovery) or {}
  local stored = redis.call('HLEN', places.outcome) > 0 and read(places.outcome) or {}
  local retries = crash.mode == 'retry' and verdict == 'auto'
  local attempts, own_options = retries and read(places.attempt), retries and read(places.options)
  local terminal = terminal_of(terminal_places, ids)
  local marks = how.grace and places.parked and read(places.parked) or {}
  -- Whether the job stays parked for now.
  local function waits(index, id, fence, phase)
    local grace = how.grace and how.grace[phase] or 0
    local since = math.min(parked_since(marks[index], fence, phase) or how.since, how.since)
    if how.now_ms - since >= grace then return false end
    found.parked[#found.parked + 1] = id
    local mark = string.format('%s %s %d', fence, phase, since)
    if mark ~= marks[index] then found.marks[#found.marks + 1], found.marks[#found.marks + 2] = id, mark end
    return true
  end
  local function add(group, values, id, value)
    group[#group + 1] = id
    if values then values[#values + 1], values[#values + 2] = id, value end
  end
  local function fail(id, code, message)
    add(found.failed, found.errors, id, error_json(code, message))
    found.failed_words[#found.failed_words + 1] = id .. ' ' .. code .. ' ' .. brief_of(message) .. ' -'
    return 'failed'
  end
  -- Fails a job with damaged data. No hook runs for it.
  local function corrupt(id, message)
    add(found.broken, found.faults, id, error_json('corrupt', message))
    found.broken_words[#found.broken_words + 1] = id .. ' corrupt ' .. brief_of(message) .. ' -'
    return 'failed'
  end
  local function crashed(id, silence, ...)
    return fail(id, 'worker_crashed', string.format('%s: ' .. select(1, ...), silence, select(2, ...)))
  end
  -- A crash counts as a failed run.
  local function retry(index, id, silence, count, max)
    local failed, own = count_of(attempts[index]), object_of(own_options[index])
    if not failed then return corrupt(id, 'attempt is no number') end
    local policy = type(own.retry) == 'table' and own.retry or crash.policy
    local most = tonumber(own.attempts) or tonumber(policy.attempts) or 1
    failed = failed + 1
    found.attempts[#found.attempts + 1], found.attempts[#found.attempts + 2] = id, failed
    if max and count > max then return crashed(id, silence, 'stalled %d times, max_count is %d', count, max) end
    if failed >= most then return crashed(id, silence, 'run %d of %d', failed, most) end
    local delay = backoff_ms(policy, failed)
    add(found.retried, found.crashes, id, error_json('worker_crashed', silence))
    found.delays[#found.delays + 1] = delay
    found.retried_words[#found.retried_words + 1] = string.format('%s %d %s worker_crashed %s -', id, failed, delay,
      brief_of(silence))
    return 'retrying'
  end
  -- The handler has ended and the hook has not: only the hook runs again.
  local function finalize(index, id, max)
    local kind, failed, stalls, ran = outcome_of(stored[index])
    stalls = stalls + (tokens[index] and verdict ~= 'spare' and 1 or 0)
    add(found.hooks, found.outcomes, id, string.format('%s %d %d %s', kind, failed, stalls, ran))
    if verdict ~= 'fail' and (verdict ~= 'auto' or stalls <= max) then return 'requeued', stalls end
    found.hooks[#found.hooks], found.finals[#found.finals + 1] = nil, id
    local why = verdict == 'fail' and by .. ' let it end' or
      string.format('stalled %d times, max_count is %d', stalls, max)
    found.final_words[#found.final_words + 1] = id .. ' worker_crashed ' .. brief_of('the hook: ' .. why)
    return kind, stalls
  end
  for index, id in ipairs(ids) do
    local holder, fence = string.match(tokens[index] or '', '^(.*):(%d+)$')
    holder, found.fences[id] = holder or '-', tonumber(fence) or 0
    local count, action = count_of(counts[index]), nil
    local own = tonumber(string.match(own_max[index] or '', '^%d+$'))
    local phase = phase_of(fence, claimed[index], stored[index])
    local may_wait = how.grace and fence and (stored[index] or count and not reasons[index]) and not terminal[index]
    local is_left_out, begins_early = false, fence and early[index] == fence
    if redis.call('HEXISTS', places.payload, id) == 0 then
      action = 'dropped'
      add(found.dropped, nil, id)
    elseif may_wait and waits(index, id, fence, phase) or verdict == 'requeue' and phase ~= 'claimed' then
      is_left_out = true
    elseif stored[index] and not terminal[index] then
      action, count = finalize(index, id, own or crash.max)
      found.holders[id] = holder
    elseif not tokens[index] then
      if not terminal[index] then action = corrupt(id, 'the job was running but no worker held its lock') end
    elseif not count then
      action = corrupt(id, 'stalledCount is no number')
    elseif phase == 'claimed' and not reasons[index] and verdict ~= 'fail' then
      action = 'requeued'
      add(found.requeued, nil, id)
      found.holders[id] = holder
      found.times[id] = 1 + (tonumber(string.match(recovered[index] or '', '^requeued %S+ %d+ (%d+)$')) or 0)
      -- An uncounted crash is remembered.
      found.kept[id] = count == 0 and has_crashed(recovered[index]) and recovered[index] or nil
    elseif begins_early and not (reasons[index] or verdict == 'fail' or has_crashed(recovered[index])) then
      -- Its handler may not have run. The recovery remembers this, so the next crash counts.
      action = 'requeued'
      add(found.recovered, nil, id)
      found.holders[id] = holder
    else
      if verdict ~= 'spare' then found.counted[#found.counted + 1], count = id, count + 1 end
      local silence = string.format(how.said, holder)
      local max = own or crash.max
      if reasons[index] then
        action = 'cancelled'
        add(found.cancelled, found.reasons, id, error_json('cancelled', reasons[index]))
      elseif verdict == 'fail' then
        action = fail(id, 'worker_crashed', silence .. string.format(', and %s let the job fail', by))
      elseif verdict == 'auto' and crash.mode == 'fail' then
        action = crashed(id, silence, 'the task lets such a job fail')
      elseif retries then
        action = retry(index, id, silence, count, own or crash.max_set and max)
      elseif verdict == 'auto' and count > max then
        action = crashed(id, silence, 'stalled %d times, max_count is %d', count, max)
      else
        action = verdict == 'spare' and 'requeued' or 'recovered'
        add(found.recovered, nil, id)
      end
      if action ~= 'cancelled' then found.broken_off = found.broken_off + 1 end
      if action == 'failed' or action == 'retrying' then
        found.failed_runs = found.failed_runs + 1
        if not retries or found.attempts[#found.attempts] == 1 then found.began_to_fail = found.began_to_fail + 1 end
      end
      found.holders[id] = holder
    end
    if not is_left_out then found.decided[#found.decided + 1] = id end
    if action then
      local at = #found.words
      found.words[at + 1], found.words[at + 2] = id, string.format('%d', count or 0)
      found.words[at + 3], found.words[at + 4] = action, holder
      for _, word in ipairs({ id, found.words[at + 2], action, holder, fence or '0' }) do
        found.resolved[#found.resolved + 1] = word
      end
    end
  end
  return found
end

-- Records how the jobs were recovered: why, from which worker, when; for requeued ones also how often in a row.
local function note_recovery(recovery, ids, found, how)
  local values = {}
  for index, id in ipairs(ids) do
    local times, tail = found.times[id], string.format(' %s %d', found.holders[id], how.now_ms)
    values[2 * index - 1] = id
    values[2 * index] = found.kept[id] or times and 'requeued' .. tail .. ' ' .. times or how.reason .. tail
  end
  if #values > 0 then redis.call('HSET', recovery, unpack(values)) end
end

-- Writes what was decided about the jobs, and releases them. A shrinking command first, even if it removes nothing:
-- only then a server at maxmemory accepts the others.
local function resolve(ids, found, places, how)
  if #ids > 0 then must_be_allowed_to_move(places) end
  redis.call('SREM', places.candidates, '', unpack(ids))
  if #ids > 0 then
    redis.call('SREM', places.active, unpack(ids))
    redis.call('HDEL', places.locks, unpack(ids))
    redis.call('HDEL', places.cancelling, unpack(ids))
    redis.call('HDEL', places.claimed, unpack(ids))
    redis.call('HDEL', places.early, unpack(ids))
  end
  for _, id in ipairs(found.counted) do redis.call('HINCRBY', places.stalled_count, id, 1) end
  count_failing(places.meta, how.now_ms, found.failed_runs, found.began_to_fail, found.broken_off)
  if #found.attempts > 0 then redis.call('HSET', places.attempt, unpack(found.attempts)) end
  if #found.dropped > 0 then remove_columns(places.columns, found.dropped) end
  if #found.failed > 0 then finish(places, how, 'failed', found.failed, found.errors) end
  if #found.broken > 0 then finish(places, how, 'failed', found.broken, found.faults, true) end
  if #found.cancelled > 0 then finish(places, how, 'cancelled', found.cancelled, found.reasons) end
  if #found.hooks > 0 then note_recovery(places.recovery, found.hooks, found, how) end
  local again = {}
  for _, id in ipairs(found.hooks) do again[#again + 1], again[#again + 2] = string.format('%d', how.now_ms), id end
  await_hooks(places, found.outcomes, again)
  end_finalized(places, how, found.finals, found.final_fields)
  -- Oldest in front; jobs that had begun are older than those that had not.
  local function by_fence(one, other) return found.fences[one] < found.fences[other] end
  table.sort(found.requeued, by_fence)
  table.sort(found.recovered, by_fence)
  for _, group in ipairs({ found.requeued, found.recovered }) do
    if #group > 0 then
      back_to_wait('LPUSH', places.lists, places.priority, group, places.enqueued_at, how.now_ms)
      note_recovery(places.recovery, group, found, how)
    end
  end
  if #found.retried > 0 then
    local delayed, due = places.delayed, {}
    for index, id in ipairs(found.retried) do
      due[2 * index - 1], due[2 * index] = string.format('%d', how.now_ms + found.delays[index]), id
    end
    redis.call('ZADD', delayed, unpack(due))
    redis.call('HSET', places.errors, unpack(found.crashes))
    record_since(places.enqueued_at, found.retried, how.now_ms)
    note_recovery(places.recovery, found.retried, found, how)
  end
  local waits = not how.paused and #found.recovered + #found.requeued + #found.retried > 0
  local finalizes = #found.hooks > 0 or how.hook and #found.failed + #found.cancelled > 0
  if waits or finalizes then ring_wake(places.wake) end
  if #ids > 0 then free_slots(places, ids) end
end

-- Reports the stalls, in both streams. `watched` says what a sweep based its decision on.
local function report_stalls(found, places, how, watched)
  if #found.words == 0 then return end
  local fields = {}
  add_words(fields, 'watched', watched and { watched } or {})
  add_words(fields, 'reason', { how.reason })
  add_words(fields, 'by', how.by == '' and {} or { how.by })
  add_words(fields, 'stalled', found.words)
  local count = #found.words / 4
  emit_event(places.stalls, places.meta, 'stalls', count, how.worker, fields)
  -- Jobs that ended or were delayed are also reported as such, like all others.
  add_finished(fields, how, 'failed', found.failed, found.failed_words)
  join_words(fields, 'failed', found.broken_words)
  add_words(fields, 'retrying', found.retried_words)
  add_finished(fields, how, 'cancelled', found.cancelled, found.cancelled)
  add_dropped(fields, places.meta, found.dropped, how.now_ms)
  add_words(fields, 'hook_failed', found.final_words)
  count_failed_hooks(places.meta, #found.final_words, how.now_ms)
  for _, word in ipairs(found.final_fields) do fields[#fields + 1] = word end
  local decided, finals = #found.failed + #found.cancelled, #found.finals
  local ended = #found.broken + finals + (how.hook and 0 or decided)
  count = count + decided + #found.broken + #found.retried + #found.dropped + 2 * finals
  if ended > 0 then redis.pcall('HINCRBY', places.meta, 'out', ended) end
  if how.event_mode ~= 'off' then emit_event(places.events, places.meta, 'events', count, how.worker, fields) end
end
