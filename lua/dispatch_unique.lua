-- Writes a new job with a unique key, unless a job that counts has the key. With `replace` or `debounce`, gives a job
-- that waits under the key the new input instead. The entry of the key is written first, then the job as in `dispatch`.
-- A call that is refused midway leaves an entry without a job, which blocks nothing.
-- Uses     now words events emit wake lanes leave_lanes slots types columns nodes states enter finish end_event failure
-- Uses     unlock may place largest unique renew
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  wait:high     (list)    ids
-- KEYS[8]  wait          (list)    ids
-- KEYS[9]  wait:low      (list)    ids
-- KEYS[10] meta          (hash)    wire version, options, totals, largest payload, pause
-- KEYS[11] events        (stream)  one entry
-- KEYS[12] wake          (zset)    marker for idle workers
-- KEYS[13] attempt       (hash)    column
-- KEYS[14] stalledCount  (hash)    column
-- KEYS[15] result        (hash)    column
-- KEYS[16] error         (hash)    column
-- KEYS[17] options       (hash)    column
-- KEYS[18] maxCount      (hash)    column
-- KEYS[19] priority      (hash)    column
-- KEYS[20] dispatchedAt  (hash)    column
-- KEYS[21] snoozes       (hash)    column
-- KEYS[22] enqueuedAt    (hash)    column
-- KEYS[23] recovery      (hash)    column
-- KEYS[24] expiresAt     (hash)    column
-- KEYS[25] checkpoint    (hash)    column
-- KEYS[26] progress      (hash)    column
-- KEYS[27] outcome       (hash)    column
-- KEYS[28] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[29] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[30] cancelling    (hash)    id -> reason
-- KEYS[31] active        (set)     running ids heard from since the snapshot
-- KEYS[32] candidates    (set)     running ids silent since the snapshot
-- KEYS[33] parked        (hash)    id -> fence, phase and silent since (ms) of a parked job
-- KEYS[34] expires       (zset)    ids by expiry time, ms
-- KEYS[35] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- KEYS[36] unique        (hash)    unique key -> its entry: see lib/unique.lua
-- KEYS[37] uniqueOf      (hash)    id -> unique key
-- KEYS[38] lanes         (zset)    entries of waiting jobs with keys: see lib/lanes.lua
-- KEYS[39] laneOf        (hash)    id -> key
-- KEYS[40] turns         (zset)    keys by turn
-- KEYS[41] laneHeld      (zset)    entries of held jobs with keys
-- ARGV[1]  wire          (version of the caller)
-- ARGV[2]  partitions    (number that the caller assumes)
-- ARGV[3]  call          (id of this call: the same when it is repeated)
-- ARGV[4]  id            (of the new job)
-- ARGV[5]  payload       (of the new job)
-- ARGV[6]  key           (unique key)
-- ARGV[7]  mode          (done, started, period, replace or debounce)
-- ARGV[8]  time          (ms: the period; for debounce, how long after the first dispatch it may be postponed; else 0)
-- ARGV[9]  options       (triples as in `dispatch`: column, 1, value)
-- Returns  {'placed', word, id}: new; existed: the key, or the id, is taken; replaced: the job that waited has the new
--          input, or was claimed and has ended; postponed: it is also due later. A repeated call gets its first answer
-- Returns  {'key', the JSON pointer to the key of the job}: the call needs the key; nothing is written
-- Returns  {'partitions', how many the task has}: not what the caller assumes; nothing is written
-- Emits    dispatched, replaced, cancelled, finalizing
-- Refuses  NEWERWIRE: the task's data was written by a newer version
--          NOPERM, WRONGTYPE before the first write
local call, id, input, key, mode, time = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local wire, default, event_mode, known_largest, paused, begun, parts, keep, hook, declared,
  pointer = unpack(redis.call('HMGET', meta, 'wire', 'priority', 'eventMode', 'largest', 'paused', 'in', 'partitions',
    'keepCancelled', 'hook', 'declaredAt', 'key'))
if tonumber(wire or 0) > tonumber(ARGV[1]) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. wire)
end
if (parts or (wire and '1' or ARGV[2])) ~= ARGV[2] then return { 'partitions', parts or '1' } end
local is_keyed = count_triples(9, 'laneOf') > 0
if not is_keyed and (pointer or '') ~= '' then return { 'key', pointer } end
local entry, _, now_ms = entry_of(redis.call('HGET', unique, key)), now_us()
if entry then
  local word, before = answer_of(entry, call)
  if word then return { 'placed', word, before } end
end
local columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }
local places = { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed, locks = locks,
  finalizing = finalizing, outcome = outcome, claimed = claimed, cancelling = cancelling, active = active,
  candidates = candidates, parked = parked, errors = errors, result = result, outbox = outbox, meta = meta, wake = wake,
  columns = columns, lane_of = lane_of, turns = turns, lane_held = lane_held }
local own = { payload = payload, options = options, maxCount = max_count, priority = priority,
  dispatchedAt = dispatched_at, expiresAt = expires_at, expires = expires, laneOf = lane_of, lanes = lanes,
  turns = turns, meta = meta }
local states = states_of(payload, locks, places, { id, entry and entry.id or id })
if states[1] ~= 'unknown' then return { 'placed', 'existed', id } end
local state, renews = entry and states[2] or 'unknown', mode == 'replace' or mode == 'debounce'
local waits = renews and is_pending(state)
if entry and not waits and not (renews and entry.mode ~= 'period') and is_blocking(entry, state, now_ms) then
  return { 'placed', 'existed', entry.id }
end

expect_types({ wait_high, wait, wait_low }, {}, { options, max_count, priority, dispatched_at, expires_at, unique_of,
  lane_of }, { expires, lanes, turns, lane_held })
local first_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
if waits then
  expect_types({}, { active, candidates }, columns, { finalizing, outbox })
  expect_types({}, {}, { cancelling, parked, claimed }, {})
end
local ends, how = waits and state == 'claimed', { keep = { cancelled = keep }, now_ms = now_ms, nodes = false,
  hook = hook == '1' or not declared }
if ends then must_be_allowed_to_end(places) end
local word, count, fields, soonest = ends and 'replaced' or 'new', 1, {}, nil
-- A period lasts, whatever later dispatches ask for.
local lasts, over = entry and entry.mode == 'period' and now_ms < entry.over, 0
if mode == 'period' or mode == 'debounce' then over = now_ms + time end
local fresh = { id = id, mode = lasts and 'period' or renews and 'done' or mode, over = lasts and entry.over or over,
  calls = entry and entry.calls or '' }
-- A growing command first: a server at maxmemory refuses the call whole.
if waits and not ends then
  word, id, waits = mode == 'debounce' and state == 'delayed' and 'postponed' or 'replaced', entry.id, false
  if entry.mode == 'done' and entry.over > 0 then fresh.over = entry.over end
  fresh.id = id
  redis.call('HSET', unique, key, text_of_entry(fresh, now_ms, call, word, id))
  local ran = { checkpoint, attempt, stalled_count, result, errors, snoozes, recovery, progress }
  local given = renew_job(9, id, input, own, ran, now_ms)
  if word == 'postponed' then postpone(delayed, id, given.delay, fresh.over, now_ms) end
  add_words(fields, 'replaced', { id })
else
  redis.call('HSET', unique, key, text_of_entry(fresh, now_ms, call, word, id))
  redis.call('HSET', unique_of, id, key)
  waits, soonest = place_jobs(9, { id }, { [id] = 1 }, string.match(default or 'normal', '^%l+'), own,
    { high = wait_high, normal = wait, low = wait_low }, delayed)
  redis.call('HSET', payload, id, input)
  redis.call('HSET', meta, 'in', (tonumber(begun) or 0) + 1, 'wire', wire or ARGV[1],
    unpack(is_keyed and { 'keyed', '1' } or {}))
  if not wire and ARGV[2] ~= '1' then redis.call('HSET', meta, 'partitions', ARGV[2]) end
  add_words(fields, 'dispatched', { id })
end
if #input > (tonumber(known_largest) or 0) then redis.call('HSET', meta, 'largest', bound_of(#input)) end
if ends then
  end_claimed(places, how, entry.id)
  add_finished(fields, how, 'cancelled', { entry.id }, { entry.id })
  count = 2
  if not how.hook then redis.pcall('HINCRBY', meta, 'out', 1) end
elseif entry and state == 'unknown' and entry.id ~= id then
  redis.call('HDEL', unique_of, entry.id)
end
if event_mode ~= 'off' then emit_event(events, meta, 'events', count, '', fields) end
local rings = word ~= 'postponed' and (waits or soonest and (not first_due or soonest < first_due))
if rings and not paused or ends and how.hook then ring_wake(wake) end
if ends then free_slots(places, { entry.id }) end
return { 'placed', word, id }
