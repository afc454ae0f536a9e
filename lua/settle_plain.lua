-- Does what settle does, at about half the cost, in a plain task: for jobs that have completed, begin, or are claimed.
-- Wherever another rule of settle could apply it answers 'full' and writes nothing. The caller then calls settle.
-- Uses     now words events wake lock enter early full plain
-- KEYS[1]  replies       (hash)    worker and call sequence -> last call number and its reply
-- KEYS[2]  meta          (hash)    as in settle
-- KEYS[3]  active        (set)     running ids heard from since the snapshot
-- KEYS[4]  locks         (hash)    id -> token
-- KEYS[5]  wait          (list)    ids
-- KEYS[6]  completed     (zset)    ids by finish time, ms
-- KEYS[7]  events        (stream)  one entry
-- KEYS[8]  wake          (zset)    marker for idle workers
-- KEYS[9]  payload       (hash)    column
-- KEYS[10] candidates    (set)     running ids silent since the snapshot
-- KEYS[11] delayed       (zset)    ids by due time, ms
-- KEYS[12] failed        (zset)    ids by finish time, ms
-- KEYS[13] cancelled     (zset)    ids by finish time, ms
-- KEYS[14] result        (hash)    column
-- KEYS[15] error         (hash)    column
-- KEYS[16] attempt       (hash)    column
-- KEYS[17] enqueuedAt    (hash)    column
-- KEYS[18] cancelling    (hash)    must be empty
-- KEYS[19] wait:high     (list)    must be empty
-- KEYS[20] wait:low      (list)    must be empty
-- KEYS[21] stalledCount  (hash)    column
-- KEYS[22] options       (hash)    column
-- KEYS[23] dispatchedAt  (hash)    column
-- KEYS[24] maxCount      (hash)    column
-- KEYS[25] priority      (hash)    column
-- KEYS[26] snoozes       (hash)    column
-- KEYS[27] recovery      (hash)    column
-- KEYS[28] expiresAt     (hash)    column
-- KEYS[29] checkpoint    (hash)    column
-- KEYS[30] progress      (hash)    column
-- KEYS[31] outcome       (hash)    must be empty
-- KEYS[32] tombstones    (hash)    must be empty
-- KEYS[33] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[34] early         (hash)    id -> fence of a held job that began before it had a slot
-- KEYS[35] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- ARGV[1]  call          (number of this call in its sequence)
-- ARGV[2]  before        (number of the call before, and a line feed)
-- ARGV[3]  sequence      (field of `replies`)
-- ARGV[4]  worker        (id)
-- ARGV[5]  ask           (the worker's interval, ms)
-- ARGV[6]  want          (jobs to claim, at most 200)
-- ARGV[7]  begin         (words: how many of them begin, how many of those have a slot; how many jobs that were claimed
--                         before begin, how many of those have a slot. '': all of them, each with a slot; none before)
-- ARGV[8]  completed     (number of completed jobs, at most 500)
-- ARGV[9]  ran           (the run time of each, us, as words)
-- ARGV[10] reports       (ids of the completed jobs, and of those that begin; the token of each; then pairs position,
--                         value of completed jobs)
-- Returns  {'settled', first fence, ids as words, payloads, ms to the next due job ('' without one), how many of the
--          ids begin, then their dispatch times (ms) if any is stored; both omitted if all begin and none is}
-- Returns  {'full'}: the caller must call settle, under the same number; nothing is written
-- Emits    completed, started, claimed
-- Refuses  WRONGTYPE before the first write
local worker, want, done, full = ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[8]), { 'full' }
local begin, slots, begins, begin_slots = plan_of(ARGV[7], want, claimed)
local is_early, known = begin > slots or begins > begin_slots, done + begins
-- Only the call after the recorded one: settle has the answer to a repeated call.
local record = redis.call('HGET', replies, ARGV[3])
if not record or string.sub(record, 1, #ARGV[2]) ~= ARGV[2] then return full end
local others = redis.call('EXISTS', candidates, delayed, failed, cancelled, result, errors, attempt, enqueued_at,
  cancelling, wait_high, wait_low, stalled_count, options, dispatched_at, max_count, priority, snoozes, recovery,
  expires_at, checkpoint, progress, outcome, tombstones, early)
local last, total, out, largest, keeps, event_mode, asked, declared, hook, nodes, paused, failing, broken_off, limits,
  rest, keyed = unpack(redis.call('HMGET', meta, 'fence', 'events', 'out', 'largest', 'keepCompleted', 'eventMode',
    'ask', 'declaredAt', 'hook', 'nodes', 'paused', 'failedSinceCompleted', 'brokenOffSinceCompleted', 'limits',
    'full', 'keyed'))
if not declared or hook == '1' or paused or keyed then return full end
if ARGV[5] ~= asked and tonumber(ARGV[5]) > (tonumber(asked) or 0) then return full end
if is_early and not allows_early(meta) then return full end
if nodes then redis.call('ZCARD', outbox) end
local most, running, room, claims = nil, nil, ARGV[6], want > 0
if limits and limits ~= '' or rest then most, running, room = room_of(limits, rest, locks, done, want, slots) end
if not room then return full end
if most then want, begin, slots = room, room, room end
local now, now_ms = now_us()
local heads, next_due = redis.call('LRANGE', wait, '0', room), nil
-- One more than wanted, to know whether entries remain.
local left = #heads > want and table.remove(heads)
if #heads * (tonumber(largest) or LARGE + 1) > LARGE then return full end

local ids, jobs = { unpack(ARGV, 10, 9 + done) }, { unpack(ARGV, 10, 9 + known) }
for at = 1, #heads do jobs[known + at] = heads[at] end
-- The locks of all: those of reported jobs must be the worker's, and the heads must have none.
local tokens = #jobs > 0 and redis.call('HMGET', locks, unpack(jobs)) or {}
-- `columns`: those that hold something.
local payloads, scores, columns, has_early, times = {}, {}, {}, false, nil
if #heads > 0 then
  payloads, scores = redis.call('HMGET', payload, unpack(heads)), redis.call('ZMSCORE', completed, unpack(heads))
else
  -- Checks the types before the first write, as all reads here do.
  redis.call('HLEN', payload)
  redis.call('ZCARD', completed)
end
if not are_sound(heads, tokens, known, payloads, scores) then return full end
if others > 0 then
  if redis.call('EXISTS', cancelling, wait_high, wait_low, outcome, tombstones) > 0 then return full end
  -- Uses here filled others
  columns = filled('HLEN', result, errors, attempt, options, enqueued_at, checkpoint, progress, stalled_count,
    dispatched_at, max_count, priority, snoozes, recovery, expires_at)
  has_early = redis.call('HLEN', early) > 0
  local starting = { unpack(jobs, done + 1) }
  next_due = due_if_plain(candidates, delayed, { failed, cancelled }, columns, { attempt, options, stalled_count,
    snoozes, recovery, expires_at, is_early and max_count }, starting, claims and now_ms)
  if next_due == false then return full end
  times = #starting > 0 and columns[dispatched_at] and redis.call('HMGET', dispatched_at, unpack(starting))
end

-- Writes from here on. A shrinking command first, as in settle.
redis.call('SREM', active, '', unpack(ids))
local fields, news, given, time = {}, {}, table.concat(heads, ' '), string.format('%d', now_ms)
if done > 0 then
  if others > 0 then redis.call('SREM', candidates, unpack(ids)) end
  redis.call('HDEL', locks, unpack(ids))
  if has_early then redis.call('HDEL', early, unpack(ids)) end
  end_completed(completed, payload, columns, result, checkpoint, keeps, ids, time, 10 + 2 * known, nodes and outbox)
  fields = { 'ran', ARGV[9] }
  add_words(fields, 'completed', ids)
  news = news_of_completed(out, done, time, failing, broken_off)
end
if begins > 0 then begin_claimed(claimed, early, jobs, done, known, begin_slots, #worker) end
local fence, count, begun = next_fence(last, now), known + #heads, math.min(begin, #heads)
local first = string.format('%d', fence)
if #heads > 0 then
  redis.call('LTRIM', wait, #heads, '-1')
  if columns[enqueued_at] then redis.call('HDEL', enqueued_at, unpack(heads)) end
  redis.call('SADD', active, unpack(heads))
  lock_jobs(locks, worker, fence, heads)
  if slots < #heads then mark_ahead(early, claimed, heads, slots, begun, fence, fields) end
  news[#news + 1], news[#news + 2] = 'fence', #heads == 1 and first or string.format('%d', fence + #heads - 1)
end
if times then add_since(fields, jobs, times, done, begins + begun) end
local is_given = begun > 0 and begins + #heads == begun
add_words(fields, 'started', is_given and { given } or { unpack(jobs, done + 1, known + begun) })
local tells, told = count > 0 and event_mode ~= 'off', string.format('%d', (tonumber(total) or 0) + count)
if tells then news[#news + 1], news[#news + 2] = 'events', told end
local is_full = most and put_full(running + #heads >= most and 'running' or nil, rest, meta, news)
if #news > 0 then redis.call('HSET', meta, unpack(news)) end
redis.call('HSET', replies, ARGV[3], ARGV[1] .. '\n\n\n' .. first .. '\n' .. begun .. '\n' .. given)
if tells then append_entry(events, meta, 'events', told, count, worker, fields) end
if left and not is_full then ring_wake(wake) elseif claims then ring_wake(wake, true) end
return { 'settled', first, given, payloads, next_due and math.max(0, math.ceil(next_due - now / 1000)) or '',
  (times or begun < #heads) and begun or nil, times and { unpack(times, begins + 1) } or nil }
