-- Checks the places and columns of jobs, and reports what is wrong with each. Changes nothing.
-- Uses     count object faults
-- KEYS[1]  payload      (hash)    column
-- KEYS[2]  locks        (hash)    id -> token
-- KEYS[3]  delayed      (zset)    ids by due time, ms
-- KEYS[4]  completed    (zset)    ids by finish time, ms
-- KEYS[5]  failed       (zset)    ids by finish time, ms
-- KEYS[6]  cancelled    (zset)    ids by finish time, ms
-- KEYS[7]  active       (set)     running ids heard from since the snapshot
-- KEYS[8]  candidates   (set)     running ids silent since the snapshot
-- KEYS[9]  cancelling   (hash)    id -> reason
-- KEYS[10] tombstones   (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[11] attempt      (hash)    column
-- KEYS[12] stalledCount (hash)    column
-- KEYS[13] result       (hash)    column
-- KEYS[14] error        (hash)    column
-- KEYS[15] options      (hash)    column
-- KEYS[16] maxCount     (hash)    column
-- KEYS[17] priority     (hash)    column
-- KEYS[18] dispatchedAt (hash)    column
-- KEYS[19] snoozes      (hash)    column
-- KEYS[20] enqueuedAt   (hash)    column
-- KEYS[21] recovery     (hash)    column
-- KEYS[22] expiresAt    (hash)    column
-- KEYS[23] claimed      (hash)    id -> fence of a held job that has not begun
-- KEYS[24] checkpoint   (hash)    column
-- KEYS[25] progress     (hash)    column
-- KEYS[26] outcome      (hash)    column
-- KEYS[27] finalizing   (zset)    ids whose hook has to run, by due time, ms
-- KEYS[28] meta         (hash)    options
-- ARGV[1]  began        (ms: when the caller began to read the lists)
-- ARGV[2]  jobs         (pairs id, number of its entries in the lists; at most 500)
-- Returns  {'looked', the faults of each job, separated by spaces: see docs/wire-format.md}
-- Emits    nothing
-- Refuses  WRONGTYPE
keys.columns = { attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at, snoozes,
  enqueued_at, recovery, expires_at, checkpoint, progress, outcome }
local began, ids, listed, reply = tonumber(ARGV[1]), {}, {}, { 'looked' }
for at = 2, #ARGV, 2 do ids[#ids + 1], listed[#listed + 1] = ARGV[at], tonumber(ARGV[at + 1]) end
local faults = faults_of(ids, listed, began, keys)
for at, found in ipairs(faults) do reply[at + 1] = table.concat(found, ' ') end
return reply
