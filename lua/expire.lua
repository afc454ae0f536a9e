-- Fails waiting and delayed jobs that expired before they began. A waiting job leaves a tombstone in its list.
-- Uses     now may failing words events emit wake types terminal columns nodes enter finish end_event failure
-- Uses     tombstones states
-- KEYS[1]  expires       (zset)    ids by expiry time, ms
-- KEYS[2]  expiresAt     (hash)    id -> expiry time, ms
-- KEYS[3]  payload       (hash)    column
-- KEYS[4]  locks         (hash)    id -> token
-- KEYS[5]  delayed       (zset)    ids by due time, ms
-- KEYS[6]  completed     (zset)    ids by finish time, ms
-- KEYS[7]  failed        (zset)    ids by finish time, ms
-- KEYS[8]  cancelled     (zset)    ids by finish time, ms
-- KEYS[9]  wait:high     (list)    ids
-- KEYS[10] wait          (list)    ids
-- KEYS[11] wait:low      (list)    ids
-- KEYS[12] meta          (hash)    options, totals, number of tombstones
-- KEYS[13] events        (stream)  one entry
-- KEYS[14] tombstones    (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[15] attempt       (hash)    column
-- KEYS[16] stalledCount  (hash)    column
-- KEYS[17] result        (hash)    column
-- KEYS[18] error         (hash)    column
-- KEYS[19] options       (hash)    column
-- KEYS[20] maxCount      (hash)    column
-- KEYS[21] priority      (hash)    column
-- KEYS[22] dispatchedAt  (hash)    column
-- KEYS[23] snoozes       (hash)    column
-- KEYS[24] enqueuedAt    (hash)    column
-- KEYS[25] recovery      (hash)    column
-- KEYS[26] checkpoint    (hash)    column
-- KEYS[27] progress      (hash)    column
-- KEYS[28] outcome       (hash)    column
-- KEYS[29] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[30] wake          (zset)    marker for idle workers
-- KEYS[31] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- ARGV[1]  worker        (id of the caller)
-- ARGV[2]  limit         (jobs per call, at most 200)
-- Returns  {'expired', number of jobs that failed, 1 if others remain else 0}
-- Returns  {'undeclared'}: the server has lost the options of the task; nothing is decided
-- Emits    failed, finalizing
-- Refuses  NOPERM, WRONGTYPE before the first write
local worker, limit = ARGV[1], tonumber(ARGV[2])
local declared, keep, event_mode, hook = unpack(redis.call('HMGET', meta, 'declaredAt', 'keepFailed', 'eventMode',
  'hook'))
if not declared then return { 'undeclared' } end
local _, now_ms = now_us()
local due = redis.call('ZRANGEBYSCORE', expires, '-inf', string.format('%d', now_ms), 'WITHSCORES', 'LIMIT', 0, limit)
if #due == 0 then return { 'expired', 0, 0 } end
local lists = { wait_high, wait, wait_low }
local columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }
local places = { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed,
  finalizing = finalizing, outcome = outcome, errors = errors, outbox = outbox, columns = columns, meta = meta }
local how = { keep = { failed = keep }, now_ms = now_ms, hook = hook == '1' }
expect_types(lists, {}, columns, { finalizing, outbox })
expect_types({}, {}, { tombstones }, {})
local ids = {}
for at = 1, #due, 2 do ids[#ids + 1] = due[at] end
-- By now the id may belong to another job, or to one that has begun.
local known, states = redis.call('HMGET', expires_at, unpack(ids)), states_of(payload, locks, places, ids)
local elsewhere = { delayed, completed, failed, cancelled, finalizing }
local ended, waited, put_off, values, words, ahead = {}, {}, {}, {}, {}, {}
for at, id in ipairs(ids) do
  local is_due = known[at] and (tonumber(known[at]) or 0) <= now_ms
  if is_due and states[at] == 'running' then
    -- A job that was claimed and has not begun: its worker fails or requeues it. Look again in 5 s.
    ahead[#ahead + 1], ahead[#ahead + 2] = string.format('%d', now_ms + 5000), id
  elseif is_due and (states[at] == 'waiting' or states[at] == 'delayed') then
    local group = states[at] == 'waiting' and waited or put_off
    group[#group + 1], ended[#ended + 1] = id, id
    values[2 * #ended - 1], values[2 * #ended] = id, error_json('expired', NOT_IN_TIME)
    words[#ended] = id .. ' expired ' .. brief_of(NOT_IN_TIME) .. ' -'
  end
end

must_be_allowed_to_leave(lists, columns, tombstones, meta, locks, elsewhere)
must_be_allowed_all('ZREM', { expires, delayed })
must_be_allowed_all('ZADD', { expires, outbox, unpack(elsewhere) })
must_be_allowed_all('HSET', { errors, result, outcome })
must_be_allowed('XADD', { events }, '*', 'x', 'x')
redis.call('ZREM', expires, unpack(ids))
if #ahead > 0 then redis.call('ZADD', expires, unpack(ahead)) end
if #ended > 0 then
  redis.call('HDEL', expires_at, unpack(ended))
  if #put_off > 0 then redis.call('ZREM', delayed, unpack(put_off)) end
  count_tombstones(tombstones, meta, waited, 1)
  finish(places, how, 'failed', ended, values)
  if #waited > 0 then strip_tombstones(lists, tombstones, meta, payload, locks, elsewhere) end
  count_failing(meta, now_ms, #ended, #ended, 0)
  if how.hook then ring_wake(wake) else redis.pcall('HINCRBY', meta, 'out', #ended) end
  local fields = {}
  add_finished(fields, how, 'failed', ended, words)
  if event_mode ~= 'off' then emit_event(events, meta, 'events', #ended, worker, fields) end
end
return { 'expired', #ended, #ids == limit and 1 or 0 }
