-- Resolves a bounded number of stalled candidates and, when none is left, takes the next snapshot.
-- First match wins:
--   payload gone                    lock and columns removed, no tombstone         dropped
--   its phase waits longer          parked, unless a cancel is pending
--   payload there, no lock          failed, code corrupt, unless terminal      failed
--   outcome stored                  hook stall counted, the hook runs again    requeued
--     hook stalls past max_count      terminal as stored                         completed, failed, cancelled
--   stalledCount is not a number    failed, code corrupt                       failed
--   a cancel is pending             stall counted, to cancelled                cancelled
--   claimed, and has not begun      front of its own list                      requeued
--   began early, no crash before    front of its own list                      requeued
--   task is OnCrash::Fail           stall counted, failed, worker_crashed      failed
--   task is OnCrash::Retry:         stall and attempt counted, and
--     max_count of its own passed     failed, worker_crashed                   failed
--     attempts used up                failed, worker_crashed                   failed
--     otherwise                       delayed by its backoff                   retrying
--   stalledCount + 1 > max_count    stall counted, failed, worker_crashed      failed
--   otherwise                       stall counted, front of its own list       recovered
-- Uses     now failing words events emit dropped wake lanes leave_lanes slots types filled terminal columns nodes enter
-- Uses     finish end_event failure since back_to_wait count crashed object backoff stored_outcomes grace parked may
-- Uses     fields resolve
-- KEYS[1]  candidates    (set)     running ids silent since the snapshot
-- KEYS[2]  active        (set)     running ids heard from since the snapshot
-- KEYS[3]  meta          (hash)    epoch, interval, ask, options
-- KEYS[4]  locks         (hash)    id -> token
-- KEYS[5]  cancelling    (hash)    id -> reason
-- KEYS[6]  wait:high     (list)    ids
-- KEYS[7]  wait          (list)    ids
-- KEYS[8]  wait:low      (list)    ids
-- KEYS[9]  completed     (zset)    ids by finish time, ms
-- KEYS[10] failed        (zset)    ids by finish time, ms
-- KEYS[11] cancelled     (zset)    ids by finish time, ms
-- KEYS[12] events        (stream)  one entry
-- KEYS[13] stalls        (stream)  one entry
-- KEYS[14] wake          (zset)    marker for idle workers
-- KEYS[15] payload       (hash)    column
-- KEYS[16] stalledCount  (hash)    column
-- KEYS[17] maxCount      (hash)    column
-- KEYS[18] priority      (hash)    column
-- KEYS[19] error         (hash)    column
-- KEYS[20] attempt       (hash)    column
-- KEYS[21] result        (hash)    column
-- KEYS[22] options       (hash)    column
-- KEYS[23] dispatchedAt  (hash)    column
-- KEYS[24] snoozes       (hash)    column
-- KEYS[25] enqueuedAt    (hash)    column
-- KEYS[26] recovery      (hash)    column
-- KEYS[27] expiresAt     (hash)    column
-- KEYS[28] delayed       (zset)    ids by due time, ms
-- KEYS[29] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[30] checkpoint    (hash)    column
-- KEYS[31] progress      (hash)    column
-- KEYS[32] outcome       (hash)    column
-- KEYS[33] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[34] parked        (hash)    id -> fence, phase and silent since (ms) of a parked job
-- KEYS[35] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- KEYS[36] early         (hash)    id -> fence of a held job that began before it had a slot
-- KEYS[37] laneOf        (hash)    id -> key
-- KEYS[38] turns         (zset)    keys by turn: see lib/lanes.lua
-- KEYS[39] laneHeld      (zset)    entries of held jobs with keys
-- ARGV[1]  worker        (id of the witness)
-- ARGV[2]  ask           (the worker's interval, ms; 0 for a person, who asks for none)
-- ARGV[3]  epoch         (the one that the witness watched; '' for a person, whose ids are those of parked jobs)
-- ARGV[4]  waited        (ms since it saw that epoch begin)
-- ARGV[5]  cursor        (from the call before; 0 to begin. Concurrent calls share one)
-- ARGV[6]  limit         (jobs per call, at most 500)
-- ARGV[7]  verdict       (auto: by the table; recover or fail: a person decides about jobs that would count a stall;
--                         requeue: only jobs that were claimed ahead and have not begun)
-- ARGV[8]  by            (that person; '' if none)
-- ARGV[9]  ids           (candidates to resolve, at most 500; without any, all of them, by the cursor)
-- Returns  {'swept', epoch, interval (ms), cursor, snapshot taken 0 | 1, candidates left, resolved (id, count, action,
--          worker, fence of each), number of parked jobs (omitted if 0)}
-- Returns  {'moved', epoch, interval (ms)}: the epoch is another one
-- Returns  {'early', epoch, interval (ms)}: waited is less than the interval in force
-- Returns  {'undeclared'}: the server has lost the options of the task; nothing is decided
-- Emits    stalled, into events and stalls; into events: failed, retrying, cancelled, removed, finalizing, hook_failed,
--          completed
-- Refuses  NOPERM, WRONGTYPE before the first write
local worker, ask, epoch, waited = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local cursor, limit, verdict, by = ARGV[5], tonumber(ARGV[6]), ARGV[7] or 'auto', ARGV[8] or ''
local task = fields_of(meta, { 'epoch', 'interval', 'ask', 'asker', 'askedBy', 'snapshotAt', 'heartbeat',
  unpack(STALL_OPTIONS) })
local by_mark, grace = epoch == nil, grace_of(task.grace)
local current, interval = tonumber(task.epoch) or 0, tonumber(task.interval) or ask
if not task.declaredAt then return { 'undeclared' } end
if not by_mark and epoch ~= current then return { 'moved', current, interval } end
if not by_mark and waited < math.max(1, interval) then return { 'early', current, interval } end
keys.lists = { wait_high, wait, wait_low }
keys.columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }
if grace then redis.call('HLEN', parked) end
expect_types(keys.lists, {}, keys.columns, { finalizing, outbox, task.onCrash == 'retry' and delayed or nil })
local terminal_places = filled('ZCARD', completed, failed, cancelled)
redis.call('SCARD', active)
local named = { unpack(ARGV, 9) }
local batch, silent_since = { ids = {}, cursor = cursor }, 0
if not by_mark then
  batch = next_candidates(candidates, cursor, limit, named)
elseif grace then
  batch.ids, silent_since = parked_since_of(named, parked, locks, claimed, outcome)
end
local now, now_ms = now_us()
math.randomseed(now % 2147483648)
local silence = task.heartbeat == 'manual' and 'handler_silent' or 'silent'
local how = with_options(task, { verdict = verdict, by = by, reason = verdict == 'auto' and silence or 'manual',
  worker = worker, now_ms = now_ms, grace = verdict == 'auto' and grace,
  since = math.min(tonumber(task.snapshotAt) or now_ms, now_ms),
  said = silence == 'silent' and 'no heartbeat came from worker %s for a watched interval'
    or 'the handler on worker %s did not call ctx.heartbeat() for a watched interval; the task has manual heartbeats' })
local found = decide(batch.ids, keys, terminal_places, how)

must_be_allowed('RENAME', { active, candidates }, candidates)
must_be_allowed_all('SADD SCARD EXISTS', { active, candidates })
must_be_allowed_all('HSET HDEL', { parked, meta })
must_be_allowed_all('HMGET', { locks })
-- resolve begins with a shrinking command.
resolve(found.decided, found, keys, how)
park(found, parked, candidates, active)
if by_mark and #found.decided > 0 then redis.call('HDEL', parked, unpack(found.decided)) end
-- The interval of an epoch is the largest ask of the one before; every witness has asked in this one.
local left = redis.call('SCARD', candidates)
-- Without candidates the scan is over, wherever its cursor is in a table that was once large.
local snapshot = left == 0 and not by_mark
-- What the decision is based on, for the event.
local watched = { epoch, waited, interval, task.asker or '-', task.snapshotAt or '0' }
if by_mark then watched = { current, '-', interval, task.asker or '-', string.format('%d', silent_since) } end
if snapshot then
  local since = string.format('%d', now_ms)
  if redis.call('EXISTS', active) == 1 then redis.call('RENAME', active, candidates) end
  local asked = math.max(tonumber(task.ask) or 0, ask)
  local by_other = asked > ask and task.askedBy
  current, interval = current + 1, asked > 0 and asked or interval
  redis.call('HSET', meta, 'epoch', current, 'interval', interval, 'ask', ask, 'epochAt', since, 'snapshotAt', since,
    'asker', by_other or ask > 0 and worker or task.asker or '-', 'askedBy', ask > 0 and worker or '-')
end
report_stalls(found, keys, how, table.concat(watched, ' '))
if snapshot and grace then drop_marks(parked, locks) end
return { 'swept', current, interval, snapshot and '0' or batch.cursor, snapshot and 1 or 0, left, found.resolved,
  #found.parked > 0 and #found.parked or nil }
