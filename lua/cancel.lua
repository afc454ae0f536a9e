-- Cancels a job: at once where it waits, by a flag for its worker where it is held.
-- KEYS[1]  locks         (hash)    id -> token
-- KEYS[2]  cancelling    (hash)    id -> reason
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  wait:high     (list)    ids
-- KEYS[5]  wait          (list)    ids
-- KEYS[6]  wait:low      (list)    ids
-- KEYS[7]  completed     (zset)    ids by finish time, ms
-- KEYS[8]  failed        (zset)    ids by finish time, ms
-- KEYS[9]  cancelled     (zset)    ids by finish time, ms
-- KEYS[10] meta          (hash)    options, event total
-- KEYS[11] events        (stream)  one entry
-- KEYS[12] payload       (hash)    column
-- KEYS[13] error         (hash)    column
-- KEYS[14] attempt       (hash)    column
-- KEYS[15] stalledCount  (hash)    column
-- KEYS[16] result        (hash)    column
-- KEYS[17] options       (hash)    column
-- KEYS[18] maxCount      (hash)    column
-- KEYS[19] priority      (hash)    column
-- KEYS[20] dispatchedAt  (hash)    column
-- KEYS[21] deferred      (hash)    column
-- ARGV[1]  id            (of the job)
-- ARGV[2]  reason        (text)
-- ARGV[3]  channel       (of the hint for the keeper that holds the job)
-- Returns  {'cancelled'}, {'requested'}, {'terminal', state} or {'unknown'}
-- Emits    cancelled
-- Refuses  WRONGTYPE before the first write
local id, reason, channel = ARGV[1], ARGV[2], ARGV[3]

for state, place in pairs({ completed = completed, failed = failed, cancelled = cancelled }) do
  if redis.call('ZSCORE', place, id) then return { 'terminal', state } end
end
if redis.call('HEXISTS', payload, id) == 0 then return { 'unknown' } end
local columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  deferred }
expect_types({ wait_high, wait, wait_low }, {}, columns, { delayed })
redis.call('HLEN', cancelling)
if redis.call('HEXISTS', locks, id) == 1 then
  -- A shrinking command first: behind it a server at maxmemory takes the flag.
  redis.call('HDEL', cancelling, '')
  redis.call('HSETNX', cancelling, id, reason)
  redis.pcall('PUBLISH', channel, id)
  return { 'requested' }
end
local event_mode, keep = unpack(redis.call('HMGET', meta, 'eventMode', 'keepCancelled'))
if redis.call('ZREM', delayed, id) == 0 then
  local own = redis.call('HGET', priority, id)
  redis.call('LREM', own == 'high' and wait_high or own == 'low' and wait_low or wait, 0, id)
end
local now_ms = math.floor(now_us() / 1000)
finish(cancelled, keep, now_ms, columns, { id }, errors, { id, error_json('cancelled', reason) })
if event_mode ~= 'off' then emit_event(events, meta, 'events', 1, '', { 'cancelled', id }) end
return { 'cancelled' }
