-- Repairs jobs: the faults that the caller names and that still exist.
-- Uses     now shrink_first words events emit dropped wake lanes leave_lanes slots types may terminal columns nodes
-- Uses     enter finish since back_to_wait tombstones count object faults unlock
-- KEYS[1]  payload      (hash)    column
-- KEYS[2]  locks        (hash)    id -> token
-- KEYS[3]  delayed      (zset)    ids by due time, ms
-- KEYS[4]  completed    (zset)    ids by finish time, ms
-- KEYS[5]  failed       (zset)    ids by finish time, ms
-- KEYS[6]  cancelled    (zset)    ids by finish time, ms
-- KEYS[7]  wait:high    (list)    ids
-- KEYS[8]  wait         (list)    ids
-- KEYS[9]  wait:low     (list)    ids
-- KEYS[10] active       (set)     running ids heard from since the snapshot
-- KEYS[11] candidates   (set)     running ids silent since the snapshot
-- KEYS[12] cancelling   (hash)    id -> reason
-- KEYS[13] tombstones   (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[14] meta         (hash)    options, event total
-- KEYS[15] events       (stream)  one entry
-- KEYS[16] wake         (zset)    marker for idle workers
-- KEYS[17] attempt      (hash)    column
-- KEYS[18] stalledCount (hash)    column
-- KEYS[19] result       (hash)    column
-- KEYS[20] error        (hash)    column
-- KEYS[21] options      (hash)    column
-- KEYS[22] maxCount     (hash)    column
-- KEYS[23] priority     (hash)    column
-- KEYS[24] dispatchedAt (hash)    column
-- KEYS[25] snoozes      (hash)    column
-- KEYS[26] enqueuedAt   (hash)    column
-- KEYS[27] recovery     (hash)    column
-- KEYS[28] expiresAt    (hash)    column
-- KEYS[29] claimed      (hash)    id -> fence of a held job that has not begun
-- KEYS[30] checkpoint   (hash)    column
-- KEYS[31] progress     (hash)    column
-- KEYS[32] outcome      (hash)    column
-- KEYS[33] finalizing   (zset)    ids whose hook has to run, by due time, ms
-- KEYS[34] outbox       (zset)    ended nodes to report to their workflow, by end time, ms
-- KEYS[35] early        (hash)    id -> fence of a held job that began before it had a slot
-- KEYS[36] laneOf        (hash)    id -> key
-- KEYS[37] turns         (zset)    keys by turn: see lib/lanes.lua
-- KEYS[38] laneHeld      (zset)    entries of held jobs with keys
-- ARGV[1]  by           (who asks)
-- ARGV[2]  began        (ms: when the caller began to read the lists)
-- ARGV[3]  jobs         (triples id, number of its entries in the lists, faults separated by spaces; at most 200)
-- Returns  {'mended', the repaired faults of each job, separated by spaces}
-- Emits    removed, requeued
-- Refuses  WRONGTYPE before the first write
local by, began, lists = ARGV[1], tonumber(ARGV[2]), { wait_high, wait, wait_low }
local columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }
local ids, listed, asked = {}, {}, {}
for at = 3, #ARGV, 3 do
  ids[#ids + 1], listed[#listed + 1], asked[#asked + 1] = ARGV[at], tonumber(ARGV[at + 1]), ' ' .. ARGV[at + 2] .. ' '
end

expect_types(lists, {}, { early, lane_of, unpack(columns) }, { finalizing, outbox, turns, lane_held })
local event_mode, paused = unpack(redis.call('HMGET', meta, 'eventMode', 'paused'))
local faults, places = faults_of(ids, listed, began, { payload = payload, locks = locks, delayed = delayed,
  completed = completed, failed = failed, cancelled = cancelled, active = active, candidates = candidates,
  cancelling = cancelling, claimed = claimed, tombstones = tombstones, attempt = attempt, stalled_count = stalled_count,
  enqueued_at = enqueued_at, finalizing = finalizing, outcome = outcome, result = result, errors = errors,
  options = options, meta = meta, columns = columns })
local reply, removed, requeued, hooks, freed, _, now_ms = { 'mended' }, {}, {}, {}, {}, now_us()
must_be_allowed_to_mend(lists, { active, candidates }, { tombstones, meta, locks, cancelling, claimed, early,
  lane_of, unpack(columns) }, { delayed, completed, failed, cancelled, finalizing, outbox, turns, lane_held })
shrink_first('HDEL', cancelling)
local ends = { completed = completed, failed = failed, cancelled = cancelled, outbox = outbox, columns = columns }
-- The time of the end is unknown: it must not look like a recent one.
local how = { keep = {}, now_ms = now_ms - 600000, is_again = true }
local held, watched = { locks, cancelling, claimed, early }, { active, candidates }
local mends = {
  no_payload = function(id)
    for _, place in ipairs({ delayed, completed, failed, cancelled, finalizing }) do redis.call('ZREM', place, id) end
    freed[#freed + 1] = unlock(held, watched, id)
    remove_columns(columns, { id })
    removed[#removed + 1] = id
  end,
  two_places = function(id, place)
    local has_ended = place.completed or place.failed or place.cancelled
    if place.completed then redis.call('ZREM', failed, id) end
    if place.completed or place.failed then redis.call('ZREM', cancelled, id) end
    if has_ended then freed[#freed + 1] = unlock(held, watched, id) end
    redis.call('ZREM', delayed, id)
    if has_ended or place.locks then redis.call('ZREM', finalizing, id) end
  end,
  unplaced = function(id, place) table.insert(place.outcome and hooks or requeued, id) end,
  ended_unplaced = function(id, place) finish(ends, how, place.ended, { id }, {}, true) end,
  unlocked = function(id) freed[#freed + 1] = unlock(held, watched, id) end,
  unwatched = function(id) redis.call('SADD', active, id) end,
  both_sets = function(id) redis.call('SREM', candidates, id) end,
  stray_cancel = function(id) redis.call('HDEL', cancelling, id) end,
  stray_claim = function(id) redis.call('HDEL', claimed, id) end,
  stray_hook = function(id, place)
    redis.call('HDEL', outcome, id)
    if not place.outcome then redis.call('ZREM', finalizing, id) end
    if not (place.outcome or place.is_elsewhere) then requeued[#requeued + 1] = id end
  end,
  bad_counter = function(id, place)
    if not count_of(place.attempt) then redis.call('HDEL', attempt, id) end
    if not count_of(place.stalled_count) then redis.call('HDEL', stalled_count, id) end
  end,
  miscounted = function(id, place)
    count_tombstones(tombstones, meta, { id }, place.spare - (tonumber(place.tombstones) or 0))
  end,
}
for at, id in ipairs(ids) do
  local done = {}
  for _, fault in ipairs(faults[at]) do
    if string.find(asked[at], ' ' .. fault .. ' ', 1, true) then
      mends[fault](id, places[at])
      done[#done + 1] = fault
    end
  end
  reply[at + 1] = table.concat(done, ' ')
end
if #requeued > 0 then back_to_wait('LPUSH', lists, priority, requeued, enqueued_at, now_ms) end
if #hooks > 0 or #requeued > 0 and not paused then ring_wake(wake) end
free_slots(keys, freed)
for _, id in ipairs(hooks) do
  redis.call('ZADD', finalizing, string.format('%d', now_ms), id)
  requeued[#requeued + 1] = id
end
local fields = by == '' and {} or { 'by', by }
add_dropped(fields, meta, removed, now_ms)
add_words(fields, 'requeued', requeued)
if #removed + #requeued > 0 and event_mode ~= 'off' then
  emit_event(events, meta, 'events', #removed + #requeued, '', fields)
end
return reply
