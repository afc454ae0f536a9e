-- Resolves the jobs of dead workers at once, by their tokens and the table in sweep.lua. No interval is watched: the
-- caller knows that the workers are dead, and has closed their call sequences. A phase that waits for a person waits
-- here too, unless a person says that they are dead; a phase that only waits longer does not.
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
-- KEYS[34] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- KEYS[35] early         (hash)    id -> fence of a held job that began before it had a slot
-- KEYS[36] laneOf        (hash)    id -> key
-- KEYS[37] turns         (zset)    keys by turn: see lib/lanes.lua
-- KEYS[38] laneHeld      (zset)    entries of held jobs with keys
-- ARGV[1]  worker        (id of the caller)
-- ARGV[2]  reason        (worker_restarted or manual; replaced: another worker took its name, and no stall is counted)
-- ARGV[3]  by            (who says so; '' if no person)
-- ARGV[4]  cursor        (of `locks`, from the call before; 0 to begin)
-- ARGV[5]  count         (buckets of `locks` to look at, at most 500)
-- ARGV[6]  dead          (ids of the dead workers)
-- Returns  {'reconciled', cursor for the next call (0: the end), 1 if more jobs follow under the same cursor else 0,
--          resolved (id, count, action, worker, fence of each)}
-- Returns  {'undeclared'}: the server has lost the options of the task; nothing is decided
-- Emits    stalled, into events and stalls; into events: failed, retrying, cancelled, removed, finalizing, hook_failed,
--          completed
-- Refuses  NOPERM, WRONGTYPE before the first write
local worker, reason, by, cursor, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local task = fields_of(meta, STALL_OPTIONS)
if not task.declaredAt then return { 'undeclared' } end
local dead = {}
for at = 6, #ARGV do dead[ARGV[at]] = true end
local scanned = redis.call('HSCAN', locks, cursor, 'COUNT', count)
local ids, fences, seen = {}, {}, {}
for at = 1, #scanned[2], 2 do
  local id, holder, fence = scanned[2][at], string.match(scanned[2][at + 1], '^(.*):(%d+)$')
  if dead[holder] and not seen[id] then
    seen[id], ids[#ids + 1], fences[#fences + 1] = true, id, fence
  end
end
-- Leave out the jobs that wait for a person first: they stay where they are, and must not take the place of others.
if by == '' then ids = without_waiting(ids, fences, grace_of(task.grace), claimed, outcome, cancelling) end
local more = #ids > BATCH
ids = { unpack(ids, 1, math.min(BATCH, #ids)) }
if #ids == 0 then return { 'reconciled', scanned[1], 0, {} } end
keys.lists = { wait_high, wait, wait_low }
keys.columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }
expect_types(keys.lists, { active, candidates }, keys.columns, { delayed, finalizing, outbox })
local terminal_places = filled('ZCARD', completed, failed, cancelled)
local now, now_ms = now_us()
math.randomseed(now % 2147483648)
local verdict = reason == 'replaced' and 'spare' or 'auto'
local how = with_options(task, { verdict = verdict, by = by, reason = reason, worker = worker, now_ms = now_ms,
  said = by == '' and 'worker %s is dead' or 'worker %s is dead, says ' .. string.gsub(by, '%%', '%%%%') })
local found = decide(ids, keys, terminal_places, how)

resolve(found.decided, found, keys, how)
report_stalls(found, keys, how)
return { 'reconciled', more and cursor or scanned[1], more and 1 or 0, found.resolved }
