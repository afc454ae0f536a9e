-- Records the outcomes of a worker's finished jobs and claims jobs for its free slots, in one step.
-- KEYS[1]  calls         (hash)    worker and line -> last call number and its answer
-- KEYS[2]  meta          (hash)    fence, interval, ask, event total, options, largest payload
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
-- KEYS[25] deferred      (hash)    column
-- ARGV[1]  call          (number of this call; a repeated one is answered from the record. A worker may have other
--                         calls under way, numbered by themselves: '7/2' is call 7 of its line 2)
-- ARGV[2]  worker        (id)
-- ARGV[3]  ask           (the worker's interval, ms)
-- ARGV[4]  want          (jobs to claim, at most 200)
-- ARGV[5]  completed     (n, number of completed jobs, at most 500; behind it how long each of them ran, us)
-- ARGV[6]  results       (r, how many of them have a value)
-- ARGV[7]  rest          (n ids; n fences; r pairs position, value; then 6 words for each other outcome: id, fence,
--                         kind failed | retry | requeue | snooze | undecodable, attempt (of the last two: the new value
--                         of deferred), detail, error JSON. The detail: code, brief and how long it ran in us of a
--                         failed one; delay in ms and the same of a retry; delay of the last two)
-- Returns  {'settled', fences lost, fences cancelled, first fence, ids, payloads, extras, ms to the next due job};
--          fences and ids are words with spaces between. In place of a payload over 512 KiB there is its size, a
--          number. Without a delayed job the last is ''. In a repeated answer a job that was lost since then is named
--          '{}', which is no id
-- Returns  {'stale'}: a later call was answered already; nothing is written
-- Returns  {'closed'}: the worker has stopped; nothing is written
-- Returns  {'undeclared'}: the server has lost the options of the task; nothing is written
-- Emits    completed, failed, retrying, snoozed, undecodable, requeued, cancelled, started, restarted, removed
-- Refuses  WRONGTYPE before the first write
local calls, meta, active, candidates, locks, cancelling = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local lists, delayed, events, wake, payload = { KEYS[7], KEYS[8], KEYS[9] }, KEYS[10], KEYS[14], KEYS[15], KEYS[16]
local places = { completed = KEYS[11], failed = KEYS[12], cancelled = KEYS[13], delayed = delayed, lists = lists }
local stores = { attempt = KEYS[17], result = KEYS[21], errors = KEYS[22], priority = KEYS[24],
  deferred = KEYS[25] }
local extra_columns = { KEYS[17], KEYS[18], KEYS[19], KEYS[20], KEYS[25] }
local number, second = string.match(ARGV[1], '^(%d+)(.*)$')
local call, line, worker = tonumber(number), ARGV[2] .. second, ARGV[2]
local completed, ran = string.match(ARGV[5], '^(%d+) ?(.*)$')
local ask, want, n, r = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(completed), tonumber(ARGV[6])

local repeated = replay(calls, line, call, worker, locks, payload, extra_columns)
if repeated then return repeated end
local settings = redis.call('HMGET', meta, 'fence', 'interval', 'ask', 'eventMode',
  'keepCompleted', 'keepFailed', 'keepCancelled', 'events', 'declaredAt', 'largest')
if not settings[9] then return { 'undeclared' } end
local keep = { completed = settings[5], failed = settings[6], cancelled = settings[7] }
local now = now_us()
local now_ms = math.floor(now / 1000)
-- Most of these hold nothing most of the time, and then need no question of their own.
local rare = redis.call('EXISTS', candidates, cancelling, KEYS[7], KEYS[9], delayed, KEYS[11], KEYS[12], KEYS[13],
  unpack(KEYS, 17, 25))
local terminal_places = rare > 0 and filled('ZCARD', KEYS[11], KEYS[12], KEYS[13]) or {}
rare = rare - #terminal_places
local columns = rare > 0 and filled('HLEN', KEYS[21], KEYS[22], KEYS[23], KEYS[24], unpack(extra_columns)) or {}
extra_columns = filled_extras(extra_columns, columns)
local sources, has_candidates, due, next_due = lists, false, {}, nil
if rare == #columns then
  sources, cancelling = { KEYS[8] }, nil
else
  has_candidates = redis.call('SCARD', candidates) > 0
  due, next_due = due_jobs(delayed, want, now_ms)
end
table.insert(columns, 1, payload)
local out = read_outcomes(7, n, r, ran, locks, cancelling, worker)
if #due + #out.requeue > 0 then expect_types(lists, { active }, { locks, payload }, {}) end
-- From here on writes, but for the heads of the lists: what is due may be among them.
if #due > 0 then
  redis.call('ZREM', delayed, unpack(due))
  back_to_wait('RPUSH', lists, stores.priority, due)
end
local claimed = next_jobs(sources, want, payload, tonumber(settings[10]), locks, terminal_places, extra_columns)

-- A shrinking command first, even when it names nobody: behind it a server at maxmemory takes the others.
redis.call('SREM', active, '', unpack(out.all))
local fields, ids = {}, claimed.ids
pop_jobs(claimed, places, columns, keep, now_ms, stores.errors, fields)
if #out.all > 0 then
  if has_candidates then redis.call('SREM', candidates, unpack(out.all)) end
  redis.call('HDEL', locks, unpack(out.all))
  if #out.cancelled > 0 then redis.call('HDEL', cancelling, unpack(out.cancelled)) end
  record_outcomes(out, places, stores, columns, keep, now_ms, fields)
end
local count = #out.all + #claimed.corrupt + #claimed.ghosts + #ids
local fence, total = math.max((tonumber(settings[1]) or 0) + 1, now), (tonumber(settings[8]) or 0) + count
local news = {}
local lost, ended = table.concat(out.lost, ' '), table.concat(out.cancelled_fences, ' ')
local started = table.concat(ids, ' ')
if #ids > 0 then
  redis.call('SADD', active, unpack(ids))
  lock_jobs(locks, worker, fence, ids)
  ask_interval(meta, settings[2], settings[3], ask)
  add_started(fields, claimed, started)
  news = { 'fence', string.format('%d', fence + #ids - 1) }
end
local to_tell = #fields > 0 and settings[4] ~= 'off'
if to_tell then
  news[#news + 1] = 'events'
  news[#news + 1] = string.format('%d', total)
end
if #news > 0 then redis.call('HSET', meta, unpack(news)) end
fence = string.format('%d', fence)
-- Every call is recorded, also one that changed nothing: a copy of it that comes late must not claim for nobody.
redis.call('HSET', calls, line, table.concat({ call, lost, ended, fence, started }, '\n'))
if to_tell then append_entry(events, 10000, meta, 'events', total, count, worker, fields) end
if claimed.left or #out.requeue > 0 then redis.pcall('ZADD', wake, 0, 'marker') end
if #due + #out.retry + #out.snooze + #out.undecodable > 0 then
  next_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
end
return { 'settled', lost, ended, fence, started, claimed.payloads, claimed.extras,
  next_due and math.max(0, math.ceil(next_due - now / 1000)) or '' }
