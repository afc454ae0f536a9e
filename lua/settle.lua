-- Records the outcomes of a worker's finished jobs and claims jobs for its free slots, in one step.
-- Uses     now words events dropped wake interval types filled around terminal columns nodes enter finish end_event
-- Uses     failure since back_to_wait tombstones held count crashed lock steps costs heads claim early begin object
-- Uses     stored_outcomes fields totals replay reported_outcomes hooks rest full limits
-- KEYS[1]  replies       (hash)    worker and call sequence -> last call number and its reply
-- KEYS[2]  meta          (hash)    fence, interval, ask, totals, options, largest payload, pause, tombstones, limits
-- KEYS[3]  active        (set)     running ids heard from since the snapshot
-- KEYS[4]  candidates    (set)     running ids silent since the snapshot
-- KEYS[5]  locks         (hash)    id -> token
-- KEYS[6]  cancelling    (hash)    id -> reason
-- KEYS[7]  wait:high     (list)    ids
-- KEYS[8]  wait          (list)    ids
-- KEYS[9]  wait:low      (list)    ids
-- KEYS[10] delayed       (zset)    ids by due time, ms
-- KEYS[11] completed     (zset)    ids by finish time, ms
-- KEYS[12] failed        (zset)    ids by finish time, ms
-- KEYS[13] cancelled     (zset)    ids by finish time, ms
-- KEYS[14] events        (stream)  one entry
-- KEYS[15] wake          (zset)    marker for idle workers
-- KEYS[16] payload       (hash)    column
-- KEYS[17] attempt       (hash)    column
-- KEYS[18] stalledCount  (hash)    column
-- KEYS[19] options       (hash)    column
-- KEYS[20] dispatchedAt  (hash)    column
-- KEYS[21] result        (hash)    column
-- KEYS[22] error         (hash)    column
-- KEYS[23] maxCount      (hash)    column
-- KEYS[24] priority      (hash)    column
-- KEYS[25] snoozes       (hash)    column
-- KEYS[26] enqueuedAt    (hash)    column
-- KEYS[27] recovery      (hash)    column
-- KEYS[28] expiresAt     (hash)    column
-- KEYS[29] expires       (zset)    ids by expiry time, ms
-- KEYS[30] tombstones    (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[31] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[32] checkpoint    (hash)    column
-- KEYS[33] progress      (hash)    column
-- KEYS[34] outcome       (hash)    column
-- KEYS[35] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[36] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- KEYS[37] early         (hash)    id -> fence of a held job that began before it had a slot
-- ARGV[1]  call          (number of this call in its sequence; a repeated one gets the recorded reply)
-- ARGV[2]  sequence      ('', or a suffix such as '/2': a worker may have several sequences of calls at once)
-- ARGV[3]  worker        (id)
-- ARGV[4]  ask           (the worker's interval, ms)
-- ARGV[5]  want          (jobs to claim, at most 200)
-- ARGV[6]  begin         (how many of them begin; the others wait in the worker. '': all begin, each with a slot)
-- ARGV[7]  with_slot     (how many of those that begin have a slot, or ''. A job that allows no stall needs a slot)
-- ARGV[8]  hooks         (1 if the worker has the hook of the task and runs hooks now, else '')
-- ARGV[9]  most          (the limit for payloads in the reply, bytes; '': 512 KiB)
-- ARGV[10] completed     (number of completed jobs, at most 500)
-- ARGV[11] ran           (the run time of each, us, as words)
-- ARGV[12] values        (how many of them have a value)
-- ARGV[13] begins        (how many jobs that were claimed before begin)
-- ARGV[14] begin_slots   (how many of those, the first ones, have a slot)
-- ARGV[15] reports       (ids, then fences of the completed jobs; pairs position, value; ids, then fences of the jobs
--                         that begin; then 6 words per other outcome: id, fence, kind, attempt, detail, error JSON.
--                         Kinds: failed | retry | requeue | unstart (it has not begun after all) | snooze | undecodable
--                         | hooked (the hook has run) | hook_retry | drop (its workflow no longer wants it). Attempt:
--                         failed runs (failed, retry) or hooks (hook_retry), the new value of snoozes (snooze,
--                         undecodable), else 0. Detail: failed: code, brief, run time (us); retry: delay (ms), then the
--                         same; hook_retry: delay, code, brief; hooked: code and brief if it failed for good; snooze,
--                         undecodable: delay; requeue: how long the task rests (ms), if its handler was rate
--                         limited; else '')
-- Returns  {'settled', fences lost, fences taken back, first fence, ids, payloads, extras (see extras_of in
--          lib/claim.lua), ms to the next due job ('' without one), how many of the ids begin (the first ones), flags,
--          then each id that had no payload and was removed}. Fences and ids are words separated by spaces. Taken back
--          are jobs that were cancelled, expired before they began, or must not begin without a slot. The payload of a
--          hook is its value or error. A payload that is too large is replaced by its size, a number. While the task is
--          paused only hooks begin, and how many begin is -1 minus their number. Flags are 1 if due hooks are left,
--          plus 2 if no job may begin without a slot; omitted if 0 and last. In a repeated reply a job that was
--          lost since is named '{}', which is never an id
-- Returns  {'stale'}: a later call was answered already; nothing is written
-- Returns  {'closed'}: the worker has stopped; nothing is written
-- Returns  {'undeclared'}: the server has lost the options of the task; nothing is written
-- Returns  {'keyed'}: jobs of the task have keys, so the caller must call settle_keyed; nothing is written
-- Emits    completed, failed, retrying, snoozed, undecodable, requeued, cancelled, outcome_rejected, started,
--          restarted, claimed, removed, finalizing, hook_retrying, hook_failed
-- Refuses  WRONGTYPE before the first write
local call, sequence, worker, ask = tonumber(ARGV[1]), ARGV[3] .. ARGV[2], ARGV[3], tonumber(ARGV[4])
local want, has_hook, most = tonumber(ARGV[5]), ARGV[8] == '1', tonumber(ARGV[9]) or LARGE
-- How many of the wanted jobs begin; false if all of them do, each with a slot.
local room = ARGV[6] ~= '' and { begin = tonumber(ARGV[6]), with_slot = tonumber(ARGV[7]) }
local reported = { completed = tonumber(ARGV[10]), ran = ARGV[11], values = tonumber(ARGV[12]),
  begins = tonumber(ARGV[13]), with_slot = tonumber(ARGV[14]) }
local lists, slots = { wait_high, wait, wait_low }, room and room.with_slot or want
local extra_columns = { attempt, stalled_count, options, dispatched_at, snoozes, recovery, expires_at, outcome }
local places = { active = active, candidates = candidates, locks = locks, cancelling = cancelling, claimed = claimed,
  lists = lists, delayed = delayed, completed = completed, failed = failed, cancelled = cancelled, meta = meta,
  tombstones = tombstones, payload = payload, attempt = attempt, stalled_count = stalled_count, options = options,
  result = result, dispatched_at = dispatched_at, errors = errors, max_count = max_count, priority = priority,
  snoozes = snoozes, enqueued_at = enqueued_at, recovery = recovery, expires_at = expires_at, expires = expires,
  checkpoint = checkpoint, progress = progress, outcome = outcome, finalizing = finalizing, outbox = outbox,
  early = early }

local repeated = replay(replies, sequence, call, worker, locks, places, extra_columns, most)
if repeated then return repeated end
local task = fields_of(meta, { 'fence', 'interval', 'ask', 'eventMode', 'keepCompleted', 'keepFailed', 'keepCancelled',
  'events', 'declaredAt', 'largest', 'paused', 'hook', 'nodes', 'out', 'failedSinceCompleted',
  'brokenOffSinceCompleted', 'limits', 'full', 'starts', 'keyed' })
if refused_for(task) then return { refused_for(task) } end
-- A paused task accepts outcomes and runs hooks. It gives out no jobs, none begins, and it wakes no worker for them.
local paused, now, now_ms = task.paused, now_us()
if paused then want = 0 end
local how = { now_ms = now_ms, hook = task.hook == '1', has_hook = has_hook, nodes = task.nodes == '1', most = most,
  keep = { completed = task.keepCompleted, failed = task.keepFailed, cancelled = task.keepCancelled } }

-- Reads what is there, checks the types of all keys that it may write, and decides. Nothing is written yet.
local columns, terminal_places, is_plain, has_early = look_around(places)
local sources, cancels, has_candidates, known, due, next_due = rare_work(places, is_plain, want, now_ms)
local since, has_outcomes = #due > 0 and enqueued_at or columns[enqueued_at], columns[outcome]
if how.hook and not has_outcomes then columns[#columns + 1], columns[outcome] = outcome, outcome end
-- Checks the type: a job that begins, or expires at its claim, leaves this key.
if columns[expires_at] then redis.call('ZCARD', expires) end
local extras = filled_extras(extra_columns, columns)
places.columns, places.filled = { payload, unpack(columns) }, columns
local out, fields = read_outcomes(15, reported, locks, cancels, worker), {}
local none_early = begin_none_early(out, room, meta)
if #due + #out.requeue > 0 or known then expect_types(lists, { active }, { locks, payload, enqueued_at }, {}) end
if room or moves_marks(out) then redis.call('HLEN', claimed) end
-- Checks the types: a job that expires before it begins waits for its hook too.
if how.hook or how.nodes then expect_types({}, {}, {}, { finalizing, outbox }) end
-- Writes from here on. The heads of the lists are read later: due jobs may be among them, and tombstones must not be.
local hooks, tallied = NO_HOOKS, tally(out)
if has_outcomes or how.hook and #out.all > 0 then
  hooks = settle_hooks(out, places, how, slots, extra_columns, cancelling, fields)
  want = less(want, room, hooks)
  -- Jobs may have ended in sets that were empty before: the list entries that they left are not jobs.
  if hooks.ended then terminal_places = filled('ZCARD', completed, failed, cancelled) end
end
local limit, asked = limit_of(task, out, hooks, places, has_outcomes or how.hook, now, now_ms), want
want = within(limit, want, room, task.keyed)
local elsewhere = clear_heads(places, due, known, terminal_places, meta, now_ms)
local found = next_jobs(sources, want, payload, tonumber(task.largest), locks, elsewhere, extras, known, how, limit)
local begun = begun_jobs(out, found, room, columns, max_count, expires_at, extras, paused, now_ms)
local held = lead_with(hooks, found)
tallied.broken_off = #begun_among(out.requeue, claimed, has_early and early)

-- A shrinking command first, even if it removes nothing: only then a server at maxmemory accepts the others.
redis.call('SREM', active, '', unpack(out.all))
pop_jobs(found, places, how, fields, since, expires_at, expires)
if known then count_tombstones(tombstones, meta, found.known_tombstones, -1) end
if #out.all > 0 then let_go(out, places, has_early, has_candidates) end
record_outcomes(out, places, how, fields)
local ids, count = held.ids, #out.all - out.expired + #out.refused + #out.begins + #out.unstart + #found.corrupt
  + #found.expired + #found.without_payload + #found.ids + hooks.told
local fence, total = next_fence(task.fence, now), (tonumber(task.events) or 0) + count
local lost, taken, given = table.concat(out.lost, ' '), table.concat(out.taken, ' '), table.concat(ids, ' ')
local news = news_of_ends(tallied, task, out, found, how)
if #ids > 0 then
  hold_jobs(held, worker, fence, places, fields, news)
  ask_interval(meta, task.interval, task.ask, ask, worker)
end
add_started(fields, begun, begun == held and given)
local to_tell = #fields > 0 and task.eventMode ~= 'off'
local is_limited = note_limit(limit, found, out.expired, meta, news, now_ms)
if to_tell then news[#news + 1], news[#news + 2] = 'events', total end
if #news > 0 then redis.call('HSET', meta, unpack(news)) end
local begin, first = paused and -1 - held.begin or held.begin, string.format('%d', fence)
-- Every call is recorded, even without a change: a delayed duplicate must not claim jobs that no worker would see.
redis.call('HSET', replies, sequence, table.concat({ call, lost, taken, first, begin, given }, '\n'))
if to_tell then append_entry(events, meta, 'events', total, count, worker, fields) end
local leaves = not (paused or is_limited) and (found.left or #out.requeue > 0)
  or not paused and passes_on(limit, asked, found) or hooks.wakes or how.hook and #found.expired > 0
if leaves or want > 0 or paused or is_limited then ring_wake(wake, not leaves) end
local is_moved = #due + #out.retry + #out.snooze + #out.undecodable > 0
local soon = look_at(delayed, next_due, is_moved, paused, hooks, limit, found)
return { 'settled', lost, taken, first, given, held.payloads, held.extras,
  soon < math.huge and math.max(0, math.ceil(soon - now / 1000)) or '', begin,
  (hooks.left or #found.without_payload + none_early > 0) and (hooks.left and 1 or 0) + none_early or nil,
  unpack(found.without_payload) }
