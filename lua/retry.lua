-- Puts failed and cancelled jobs back into their lists, as if they had never run: attempts, stalls and cancels are
-- reset. An old entry of the job in a list stays a tombstone next to the new one.
-- Uses     now words events emit wake types may since back_to_wait states named unique
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  wait:high     (list)    ids
-- KEYS[8]  wait          (list)    ids
-- KEYS[9]  wait:low      (list)    ids
-- KEYS[10] cancelling    (hash)    id -> reason
-- KEYS[11] meta          (hash)    options, event total, pause, number of tombstones
-- KEYS[12] events        (stream)  one entry
-- KEYS[13] wake          (zset)    marker for idle workers
-- KEYS[14] attempt       (hash)    column
-- KEYS[15] stalledCount  (hash)    column
-- KEYS[16] result        (hash)    column
-- KEYS[17] error         (hash)    column
-- KEYS[18] options       (hash)    column
-- KEYS[19] maxCount      (hash)    column
-- KEYS[20] priority      (hash)    column
-- KEYS[21] dispatchedAt  (hash)    column
-- KEYS[22] snoozes       (hash)    column
-- KEYS[23] enqueuedAt    (hash)    column
-- KEYS[24] recovery      (hash)    column
-- KEYS[25] expiresAt     (hash)    column
-- KEYS[26] progress      (hash)    column
-- KEYS[27] outcome       (hash)    column
-- KEYS[28] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[29] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[30] unique        (hash)    unique key -> its entry: see lib/unique.lua
-- KEYS[31] uniqueOf      (hash)    id -> unique key
-- ARGV[1]  by            (who asks; '' if not given)
-- ARGV[2]  anyway        (1: a job whose unique key another job has runs without its key; else 0)
-- ARGV[3]  jobs          (pairs id, stamp: at most 200; see lib/named.lua)
-- Returns  {'told', one word per job}: retried, or why not: its state, unknown, changed; or 'duplicate' and, after a
--          space, the job that has its unique key
-- Emits    manually_retried
-- Refuses  WRONGTYPE before the first write
local by, lists = ARGV[1], { wait_high, wait, wait_low }
local reset = { attempt, stalled_count, result, errors, snoozes, recovery, expires_at, progress, cancelling }
-- All acts on jobs report a claimed job as running, except for a cancel.
keys.claimed = nil
local ids, states = named_jobs(3, keys)
keys.claimed = claimed
expect_types(lists, {}, reset, {})
expect_types({}, {}, { options, max_count, priority, dispatched_at, enqueued_at, claimed, unique, unique_of }, {})
local ended, again, _, now_ms = {}, {}, now_us()
for at, id in ipairs(ids) do
  if states[at] == 'failed' or states[at] == 'cancelled' then ended[#ended + 1] = id end
end
local others, entries, keyless = keys_of_retried(keys, unique, unique_of, ended, ARGV[2] == '1', now_ms)
for at, id in ipairs(ids) do
  if states[at] == 'failed' or states[at] == 'cancelled' then
    if others[id] then states[at] = 'duplicate ' .. others[id] else states[at], again[#again + 1] = 'retried', id end
  end
end
if #again == 0 then return { 'told', unpack(states) } end
local event_mode, paused = unpack(redis.call('HMGET', meta, 'eventMode', 'paused'))

must_be_allowed_all('ZREM', { failed, cancelled })
must_be_allowed_all('HDEL', reset)
must_be_allowed_all('EXISTS HMGET', { priority })
must_be_allowed_all('RPUSH', lists)
must_be_allowed_all('HSET HGET', { enqueued_at, meta })
must_be_allowed_all('HSET', { unique })
must_be_allowed_all('HDEL', { unique_of })
redis.call('ZREM', failed, unpack(again))
redis.call('ZREM', cancelled, unpack(again))
for _, column in ipairs(reset) do redis.call('HDEL', column, unpack(again)) end
if #entries > 0 then redis.call('HSET', unique, unpack(entries)) end
if #keyless > 0 then redis.call('HDEL', unique_of, unpack(keyless)) end
back_to_wait('RPUSH', lists, priority, again, enqueued_at, now_ms)
local fields = by == '' and {} or { 'by', by }
add_words(fields, 'manually_retried', again)
if event_mode ~= 'off' then emit_event(events, meta, 'events', #again, '', fields) end
if not paused then ring_wake(wake) end
return { 'told', unpack(states) }
