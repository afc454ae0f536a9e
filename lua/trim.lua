-- Removes the oldest jobs of a terminal set, with every column, past the age or the count that the task declares.
-- Uses     now events emit types columns may
-- KEYS[1]  place         (zset)    ids by finish time, ms
-- KEYS[2]  meta          (hash)    options and event total
-- KEYS[3]  events        (stream)  one entry
-- KEYS[4]  payload       (hash)    column
-- KEYS[5]  attempt       (hash)    column
-- KEYS[6]  stalledCount  (hash)    column
-- KEYS[7]  result        (hash)    column
-- KEYS[8]  error         (hash)    column
-- KEYS[9]  options       (hash)    column
-- KEYS[10] maxCount      (hash)    column
-- KEYS[11] priority      (hash)    column
-- KEYS[12] dispatchedAt  (hash)    column
-- KEYS[13] snoozes       (hash)    column
-- KEYS[14] enqueuedAt    (hash)    column
-- KEYS[15] recovery      (hash)    column
-- KEYS[16] expiresAt     (hash)    column
-- KEYS[17] checkpoint    (hash)    column
-- KEYS[18] progress      (hash)    column
-- KEYS[19] outcome       (hash)    column
-- KEYS[20] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- ARGV[1]  worker        (id)
-- ARGV[2]  place         (Completed, Failed or Cancelled: how the names of the options end)
-- ARGV[3]  min age       (ms: younger jobs stay, unless the task keeps none)
-- ARGV[4]  limit         (jobs per call, at most 500; after the first at most 512 KiB of payloads and results)
-- Returns  {'trimmed', number of jobs, 1 if others remain else 0}
-- Returns  {'undeclared'}: the server has lost the options of the task; nothing is removed
-- Emits    removed
-- Refuses  NOPERM, WRONGTYPE before the first write
local worker, name, min_age, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local declared, keep, max_age, most, event_mode = unpack(redis.call('HMGET', meta, 'declaredAt', 'keep' .. name,
  'maxAge' .. name, 'maxCount' .. name, 'eventMode'))
if not declared then return { 'undeclared' } end
local columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }
expect_types({}, {}, columns, { place })
max_age, most = tonumber(max_age), tonumber(most)
-- A task that now keeps nothing may have kept some before.
if keep == '0' then max_age, min_age = 0, 0 end
local now_ms = now_us() / 1000
local excess = most and redis.call('ZCARD', place) - most or 0
local oldest = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('%d', now_ms - min_age),
  'WITHSCORES', 'LIMIT', 0, limit)
local ids, bytes, more = {}, 0, 0
-- An end that its workflow has not recorded yet stays.
local told = redis.call('ZCARD', outbox) > 0
for at = 1, #oldest, 2 do
  local id = oldest[at]
  local is_kept = told and string.byte(id) == 126 and redis.call('ZSCORE', outbox, id)
  local too_old = max_age and tonumber(oldest[at + 1]) <= now_ms - max_age
  if not too_old and #ids >= excess then break end
  if not is_kept then
    bytes = bytes + redis.call('HSTRLEN', payload, id) + redis.call('HSTRLEN', result, id)
    if bytes > LARGE and #ids > 0 then
      more = 1
      break
    end
    ids[#ids + 1] = id
  end
  if at == 2 * limit - 1 and #ids > 0 then more = 1 end
end
if #ids > 0 then
  must_be_allowed_all('EXISTS HDEL', columns)
  must_be_allowed_all('ZREM', { place })
  must_be_allowed_all('HGET', { meta })
  must_be_allowed('XADD', { events }, '*', 'x', 'x')
  redis.call('ZREM', place, unpack(ids))
  remove_columns(columns, ids)
  if event_mode ~= 'off' then
    emit_event(events, meta, 'events', #ids, worker, { 'removed', table.concat(ids, ' ') })
  end
end
return { 'trimmed', #ids, more }
