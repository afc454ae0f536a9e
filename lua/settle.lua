-- Records the outcomes of a worker's finished jobs and claims jobs for its free slots, in one step.
-- KEYS[1]  calls         (hash)    worker -> last call number and its answer
-- KEYS[2]  meta          (hash)    fence, interval, ask, event total, options
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
-- ARGV[1]  call          (number of this call; a repeated one is answered from the record)
-- ARGV[2]  worker        (id)
-- ARGV[3]  ask           (the worker's interval, ms)
-- ARGV[4]  want          (jobs to claim, at most 200)
-- ARGV[5]  completed     (n, number of completed jobs, at most 500)
-- ARGV[6]  results       (r, how many of them have a value)
-- ARGV[7]  rest          (n ids; n fences; r pairs position, value; then 6 words for each other outcome:
--                         id, fence, kind failed | retry | release, attempt, code or delay ms, error JSON)
-- Returns  {'settled', fences lost, fences cancelled, first fence, ids, payloads, extras, ms to the next due job};
--          without a delayed job the last is ''; in a repeated answer the id of a job that was lost since is ''
-- Returns  {'stale'}: a later call was answered already; nothing is written
-- Emits    completed, failed, retrying, released, cancelled, started, restarted, removed
-- Refuses  WRONGTYPE before the first write
local calls, meta, active, candidates, locks, cancelling = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local lists, delayed = { KEYS[7], KEYS[8], KEYS[9] }, KEYS[10]
local completed, failed, cancelled, events, wake = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local payload, attempt, result, errors, priority = KEYS[16], KEYS[17], KEYS[21], KEYS[22], KEYS[24]
local columns, extra_columns = { unpack(KEYS, 16, 24) }, { unpack(KEYS, 17, 20) }
local call, worker, ask, want = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local n, r = tonumber(ARGV[5]), tonumber(ARGV[6])

local repeated = replay(calls, worker, call, locks, payload, extra_columns)
if repeated then return repeated end
local settings = redis.call('HMGET', meta, 'fence', 'interval', 'ask', 'eventMode',
  'keepCompleted', 'keepFailed', 'keepCancelled')
expect_types(lists, { active, candidates }, { locks, cancelling, unpack(columns) },
  { delayed, completed, failed, cancelled })
local out = read_outcomes(7, n, r, locks, cancelling, worker)
local now = now_us()
local now_ms = string.format('%.0f', math.floor(now / 1000))
local fields, count = {}, #out.all

if #out.all > 0 then
  redis.call('SREM', active, unpack(out.all))
  redis.call('SREM', candidates, unpack(out.all))
  redis.call('HDEL', locks, unpack(out.all))
end
if #out.completed > 0 then
  finish(completed, settings[5], now_ms, columns, out.completed, result, out.results)
  add_words(fields, 'completed', out.completed)
end
if #out.failed > 0 then
  local ids, attempts, values, words = ids_of(out.failed)
  if settings[6] ~= '0' then redis.call('HSET', attempt, unpack(attempts)) end
  finish(failed, settings[6], now_ms, columns, ids, errors, values)
  add_words(fields, 'failed', words)
end
if #out.retry > 0 then
  local entries, words = {}, {}
  local _, attempts, values = ids_of(out.retry)
  redis.call('HSET', attempt, unpack(attempts))
  redis.call('HSET', errors, unpack(values))
  for _, o in ipairs(out.retry) do
    entries[#entries + 1] = now_ms + o.detail
    entries[#entries + 1] = o.id
    words[#words + 1] = o.id .. ' ' .. o.attempt .. ' ' .. o.detail
  end
  redis.call('ZADD', delayed, unpack(entries))
  add_words(fields, 'retrying', words)
end
if #out.release > 0 then
  local ids = ids_of(out.release)
  back_to_wait('LPUSH', lists, priority, ids)
  add_words(fields, 'released', ids)
end
if #out.cancelled > 0 then
  redis.call('HDEL', cancelling, unpack(out.cancelled))
  local values = {}
  for i, id in ipairs(out.cancelled) do
    values[2 * i - 1], values[2 * i] = id, error_json('cancelled', out.reasons[i])
  end
  finish(cancelled, settings[7], now_ms, columns, out.cancelled, errors, values)
  add_words(fields, 'cancelled', out.cancelled)
end

local claimed = { ids = {}, payloads = {}, extras = {} }
local fence = math.max((tonumber(settings[1]) or 0) + 1, now)
if want > 0 then
  promote_due(delayed, lists, priority, now_ms)
  claimed = next_jobs(lists, want, payload, locks, { completed, failed, cancelled }, extra_columns)
  pop_jobs(lists, claimed, columns, failed, settings[6], now_ms, errors, fields)
  count = count + #claimed.corrupt + #claimed.ghosts + #claimed.ids
end
if #claimed.ids > 0 then
  local tokens = {}
  for i, id in ipairs(claimed.ids) do
    tokens[2 * i - 1], tokens[2 * i] = id, string.format('%s:%.0f', worker, fence + i - 1)
  end
  redis.call('SADD', active, unpack(claimed.ids))
  redis.call('HSET', locks, unpack(tokens))
  redis.call('HSET', meta, 'fence', string.format('%.0f', fence + #claimed.ids - 1))
  ask_interval(meta, settings[2], settings[3], ask)
  add_started(fields, claimed)
end
fence = string.format('%.0f', fence)
-- Every call is recorded, also one that changed nothing: a copy of it that comes late must not claim for nobody. A
-- shrinking command first, should there have been no other: behind it a server at maxmemory takes the record.
if #out.all + #claimed.ids == 0 then redis.call('HDEL', calls, '') end
record_call(calls, worker, call, out.lost, out.cancelled_fences, fence, claimed.ids)
if #fields > 0 and settings[4] ~= 'off' then emit(events, 10000, meta, 'events', count, worker, fields) end
for _, list in ipairs(lists) do
  if redis.call('LLEN', list) > 0 then
    redis.pcall('ZADD', wake, 0, 'marker')
    break
  end
end
local next_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
return { 'settled', out.lost, out.cancelled_fences, fence, claimed.ids, claimed.payloads, claimed.extras,
  next_due and math.max(0, math.ceil(next_due - now / 1000)) or '' }
