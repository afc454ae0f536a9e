-- Removes jobs that no worker holds, from any place, with every column. A waiting job leaves a tombstone in its list.
-- Uses     words events emit types may terminal columns tombstones states named
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  wait:high     (list)    ids
-- KEYS[8]  wait          (list)    ids
-- KEYS[9]  wait:low      (list)    ids
-- KEYS[10] meta          (hash)    options, event total, pause, number of tombstones
-- KEYS[11] events        (stream)  one entry
-- KEYS[12] tombstones    (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[13] attempt       (hash)    column
-- KEYS[14] stalledCount  (hash)    column
-- KEYS[15] result        (hash)    column
-- KEYS[16] error         (hash)    column
-- KEYS[17] options       (hash)    column
-- KEYS[18] maxCount      (hash)    column
-- KEYS[19] priority      (hash)    column
-- KEYS[20] dispatchedAt  (hash)    column
-- KEYS[21] snoozes       (hash)    column
-- KEYS[22] enqueuedAt    (hash)    column
-- KEYS[23] recovery      (hash)    column
-- KEYS[24] expiresAt     (hash)    column
-- KEYS[25] checkpoint    (hash)    column
-- KEYS[26] progress      (hash)    column
-- KEYS[27] outcome       (hash)    column
-- KEYS[28] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[29] lanes         (zset)    entries of waiting jobs with keys: see lib/lanes.lua
-- ARGV[1]  by            (who asks; '' if no person: then the count of failing jobs stays)
-- ARGV[2]  jobs          (pairs id, stamp: at most 200; see lib/named.lua. Without any, removes tombstones from the
--                         heads of the lists)
-- Returns  {'told', one word per job}: removed; left: name it again, since a call removes at most 512 KiB of payloads
--          and results; or why not: running, finalizing (its hook runs), unknown, changed
-- Emits    removed
-- Refuses  WRONGTYPE before the first write
local by, lists = ARGV[1], { wait_high, wait, wait_low }
local columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }

local ids, states = named_jobs(2, keys)
expect_types(lists, {}, columns, { finalizing, lanes })
expect_types({}, {}, { tombstones, meta }, {})
local gone, waited, from, bytes = {}, {}, {}, 0
for at, id in ipairs(ids) do
  local state = states[at]
  -- A worker runs the hook of the job.
  if state == 'finalizing' and redis.call('HEXISTS', locks, id) == 1 then state = 'held' end
  if state == 'waiting' or keys[state] then
    bytes = bytes + redis.call('HSTRLEN', payload, id) + redis.call('HSTRLEN', result, id)
    if bytes > LARGE and #gone > 0 then states[at], state = 'left', 'left' end
  end
  if state == 'waiting' then waited[#waited + 1] = id end
  if keys[state] then
    from[state] = from[state] or {}
    table.insert(from[state], id)
  end
  if state == 'waiting' or keys[state] then states[at], gone[#gone + 1] = 'removed', id end
end
if #gone == 0 and #ids > 0 then return { 'told', unpack(states) } end
-- A person who removes the last failed jobs has seen them. Only jobs that are left, which may be retries, can still
-- count as failing.
local failing
if by ~= '' and from.failed and #from.failed >= redis.call('ZCARD', failed) then
  local left = redis.call('ZCARD', delayed) + redis.call('HLEN', locks) + redis.call('ZCARD', lanes)
  for _, list in ipairs(lists) do left = left + redis.call('LLEN', list) end
  failing = math.min(left, tonumber(redis.call('HGET', meta, 'failedSinceCompleted')) or 0)
end

local elsewhere = { delayed, completed, failed, cancelled, finalizing }
must_be_allowed_to_leave(lists, columns, tombstones, meta, locks, elsewhere)
must_be_allowed_all('ZREM', { lanes, unpack(elsewhere) })
for state, ids_there in pairs(from) do redis.call('ZREM', keys[state], unpack(ids_there)) end
if #gone > 0 then remove_columns(columns, gone) end
if failing then redis.call('HSET', meta, 'failedSinceCompleted', failing) end
if #waited > 0 or #ids == 0 then
  count_tombstones(tombstones, meta, waited, 1)
  strip_tombstones(lists, tombstones, meta, payload, locks, elsewhere)
end
if #gone == 0 then return { 'told' } end
local fields = by == '' and {} or { 'by', by }
add_words(fields, 'removed', gone)
if redis.call('HGET', meta, 'eventMode') ~= 'off' then emit_event(events, meta, 'events', #gone, '', fields) end
return { 'told', unpack(states) }
