-- Removes what is left of a task without jobs: options, counters, events, records of calls, schedules.
-- KEYS[1]  wait:high     (list)    ids
-- KEYS[2]  wait          (list)    ids
-- KEYS[3]  wait:low      (list)    ids
-- KEYS[4]  active        (set)     running ids
-- KEYS[5]  candidates    (set)     running ids
-- KEYS[6]  locks         (hash)    id -> token
-- KEYS[7]  delayed       (zset)    ids by due time, ms
-- KEYS[8]  completed     (zset)    ids by finish time, ms
-- KEYS[9]  failed        (zset)    ids by finish time, ms
-- KEYS[10] cancelled     (zset)    ids by finish time, ms
-- KEYS[11] cancelling    (hash)    id -> reason
-- KEYS[12] payload       (hash)    column
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
-- KEYS[25] expires       (zset)    ids by expiry time, ms
-- KEYS[26] tombstones    (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[27] replies       (hash)    records of settle calls
-- KEYS[28] meta          (hash)    options and counters
-- KEYS[29] events        (stream)  entries
-- KEYS[30] stalls        (stream)  entries
-- KEYS[31] wake          (zset)    marker for idle workers
-- KEYS[32] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[33] checkpoint    (hash)    column
-- KEYS[34] progress      (hash)    column
-- KEYS[35] outcome       (hash)    column
-- KEYS[36] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[37] parked        (hash)    id -> fence, phase and silent since (ms) of a parked job
-- KEYS[38] schedules     (zset)    schedules by the time of their next tick, ms
-- KEYS[39] schedules:rule     (hash)  schedule -> rule
-- KEYS[40] schedules:input    (hash)  schedule -> payload of its jobs
-- KEYS[41] schedules:paused   (hash)  schedule -> pause
-- KEYS[42] schedules:ledger   (hash)  schedule -> counts
-- KEYS[43] schedules:ticks    (hash)  schedule -> last ticks
-- KEYS[44] schedules:pending  (zset)  schedules with a pending tick
-- KEYS[45] schedules:keepers  (zset)  workers that fire
-- KEYS[46] schedules:named    (zset)  schedules that workers name
-- KEYS[47] schedules:gone     (zset)  removed schedules
-- KEYS[48] schedules:differ   (hash)  schedules that differ between workers
-- KEYS[49] unique        (hash)    unique key -> its entry
-- KEYS[50] uniqueOf      (hash)    id -> unique key
-- KEYS[51] early         (hash)    id -> fence of a held job that began before it had a slot
-- KEYS[52] lanes         (zset)    entries of waiting jobs with keys
-- KEYS[53] laneOf        (hash)    id -> key
-- KEYS[54] turns         (zset)    keys by turn
-- KEYS[55] laneHeld      (zset)    entries of held jobs with keys
-- KEYS[56] laneStarts    (hash)    key -> starts of the last window
-- KEYS[57] laneOwn       (hash)    key -> settings written at run time
-- KEYS[58] series        (hash)    minute or hour -> counters at its end, and durations
-- Returns  {'forgotten', number of keys}; or {'jobs', number of jobs}: nothing is removed
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- Without a payload there is no job, whatever its list still has.
local jobs = math.max(redis.call('HLEN', payload), redis.call('HLEN', locks))
for _, place in ipairs({ delayed, completed, failed, cancelled, finalizing }) do
  jobs = math.max(jobs, redis.call('ZCARD', place))
end
if jobs > 0 then return { 'jobs', jobs } end
return { 'forgotten', redis.call('UNLINK', wait_high, wait, wait_low, active, candidates, locks, delayed, completed,
  failed, cancelled, cancelling, payload, attempt, stalled_count, result, errors, options, max_count, priority,
  dispatched_at, snoozes, enqueued_at, recovery, expires_at, expires, tombstones, replies, meta, events, stalls, wake,
  claimed, early, checkpoint, progress, outcome, finalizing, parked, schedules, schedules_rule, schedules_input,
  schedules_paused, schedules_ledger, schedules_ticks, schedules_pending, schedules_keepers, schedules_named,
  schedules_gone, schedules_differ, unique, unique_of, lanes, lane_of, turns, lane_held, lane_starts,
  lane_own, series) }
