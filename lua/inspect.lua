-- Reads one job: its place, its small columns, and the sizes of its values. Changes nothing.
-- Uses     states
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  attempt       (hash)    column
-- KEYS[8]  stalledCount  (hash)    column
-- KEYS[9]  result        (hash)    column
-- KEYS[10] error         (hash)    column
-- KEYS[11] options       (hash)    column
-- KEYS[12] maxCount      (hash)    column
-- KEYS[13] priority      (hash)    column
-- KEYS[14] dispatchedAt  (hash)    column
-- KEYS[15] snoozes       (hash)    column
-- KEYS[16] enqueuedAt    (hash)    column
-- KEYS[17] recovery      (hash)    column
-- KEYS[18] expiresAt     (hash)    column
-- KEYS[19] cancelling    (hash)    id -> reason
-- KEYS[20] candidates    (set)     running ids silent since the snapshot
-- KEYS[21] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[22] checkpoint    (hash)    column
-- KEYS[23] progress      (hash)    column
-- KEYS[24] outcome       (hash)    column
-- KEYS[25] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[26] uniqueOf      (hash)    id -> unique key
-- KEYS[27] laneOf        (hash)    id -> key
-- ARGV[1]  id            (of the job)
-- Returns  {'found', state, stamp (the score, or the token of a held job), attempt, stalledCount, error, snoozes,
--          options, maxCount, priority, dispatchedAt, enqueuedAt, recovery, expiresAt, reason of a pending cancel,
--          progress, outcome, unique key, key, 1 for a candidate else 0, bytes of the payload, of the result and of
--          the checkpoint}; a column that is not set is ''; or {'unknown'}
-- Emits    nothing
-- Refuses  WRONGTYPE
local places, id = { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed,
  finalizing = finalizing, outcome = outcome, claimed = claimed }, ARGV[1]
local states, stamps = states_of(payload, locks, places, ARGV)
if states[1] == 'unknown' then return { 'unknown' } end
local found = { 'found', states[1], stamps[1] }
for _, column in ipairs({ attempt, stalled_count, errors, snoozes, options, max_count, priority, dispatched_at,
  enqueued_at, recovery, expires_at, cancelling, progress, outcome, unique_of, lane_of }) do
  found[#found + 1] = redis.call('HGET', column, id) or ''
end
found[#found + 1] = redis.call('SISMEMBER', candidates, id)
for _, column in ipairs({ payload, result, checkpoint }) do found[#found + 1] = redis.call('HSTRLEN', column, id) end
return found
