-- Writes new jobs: first their place in a list or `delayed`, then what differs from the defaults, then the payload. A
-- call that is refused midway leaves no job without a place, only ids without a payload, which a claim removes.
-- Uses     events wake new_jobs
-- KEYS[1]  payload       (hash)    id -> payload
-- KEYS[2]  completed     (zset)    duplicate check
-- KEYS[3]  failed        (zset)    duplicate check
-- KEYS[4]  cancelled     (zset)    duplicate check
-- KEYS[5]  wait          (list)    ids
-- KEYS[6]  meta          (hash)    wire version, default priority, event mode, totals, largest payload, pause
-- KEYS[7]  events        (stream)  one entry
-- KEYS[8]  wake          (zset)    marker for idle workers
-- KEYS[9]  options       (hash)    id -> overrides, JSON. Without triples this key and the rest may be omitted
-- KEYS[10] maxCount      (hash)    id -> max_count
-- KEYS[11] priority      (hash)    id -> high or low
-- KEYS[12] dispatchedAt  (hash)    id -> time, ms
-- KEYS[13] expiresAt     (hash)    id -> expiry time, ms
-- KEYS[14] expires       (zset)    ids by expiry time, ms
-- KEYS[15] wait:high     (list)    ids
-- KEYS[16] wait:low      (list)    ids
-- KEYS[17] delayed       (zset)    ids by due time, ms
-- KEYS[18] lanes         (zset)    entries of waiting jobs with keys: see lib/lanes.lua
-- KEYS[19] laneOf        (hash)    id -> key
-- KEYS[20] turns         (zset)    keys by turn
-- ARGV[1]  wire          (version of the caller)
-- ARGV[2]  partitions    (number that the caller assumes)
-- ARGV[3]  count         (number of jobs, at most 500; '' if no triples follow)
-- ARGV[4]  pairs         (id and payload of each job; then triples: column, index of the job from 1, value. Columns:
--                         options, maxCount, priority, dispatchedAt, laneOf (key), delay (ms), expires (ms from now))
-- Returns  'dispatched' and, after spaces, the index of each job that existed, in any state: it is left as it is. The
--          index is negative if that job has another payload
-- Returns  'more': the task has a default priority, so the call needs all keys; nothing is written
-- Returns  'key' and, after a space, the JSON pointer to the key of each job: the call needs keys; nothing is written
-- Returns  'partitions' and, after a space, how many the task has: not what the caller assumes; nothing is written
-- Emits    dispatched
-- Refuses  NEWERWIRE: the task's data was written by a newer version
local count = ARGV[3] == '' and (#ARGV - 3) / 2 or tonumber(ARGV[3])
local last = 3 + 2 * count

local facts = redis.call('HMGET', meta, 'eventMode', 'events', 'in', 'largest', 'wire', 'partitions', 'priority',
  'paused', 'full')
local wire, parts, default, paused, full = unpack(facts, 5, 9)
if wire ~= ARGV[1] and tonumber(wire or 0) > tonumber(ARGV[1]) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. wire)
end
-- A task without data takes the number of its first writer.
if (parts or (wire and '1' or ARGV[2])) ~= ARGV[2] then return 'partitions ' .. (parts or 1) end
local ids, has_nodes = {}, false
for index = 1, count do
  ids[index] = ARGV[2 + 2 * index]
  if string.byte(ids[index]) == 126 then has_nodes = true end
end
local stored, done = redis.call('HMGET', payload, unpack(ids)), redis.call('ZMSCORE', completed, unpack(ids))
local broken, stopped
if redis.call('EXISTS', failed, cancelled) > 0 then
  broken, stopped = redis.call('ZMSCORE', failed, unpack(ids)), redis.call('ZMSCORE', cancelled, unpack(ids))
end

local fresh, is_fresh, reply, fields, largest, written = {}, {}, 'dispatched', {}, 0, 0
for index = 1, count do
  local id, value = ids[index], ARGV[3 + 2 * index]
  if stored[index] or done[index] or is_fresh[id] or broken and (broken[index] or stopped[index]) then
    reply = reply .. ' ' .. (stored[index] and stored[index] ~= value and -index or index)
  else
    written = written + 1
    fresh[written], is_fresh[id] = id, index
    fields[2 * written - 1], fields[2 * written] = id, value
    if #value > largest then largest = #value end
  end
end
if written == 0 then return reply end

-- A plain job needs a payload and an entry in `wait`, nothing else. A growing command comes first: a server at
-- maxmemory refuses the call whole, as does a `wait` of another type.
local plain = last == #ARGV and (default or 'normal') == 'normal'
local keyed, waits, soonest, first_due = 0, true, nil, nil
if not plain then
  -- Uses here now types lanes place
  if not options then return 'more' end
  -- The option `priority` says whether the jobs need keys, so that other tasks need no further field.
  local word, needs_keys = string.match(default or 'normal', '^(%l+)(.*)$')
  keyed = count_triples(last + 1, 'laneOf')
  local pointer = needs_keys ~= '' and keyed < count and redis.call('HGET', meta, 'key') or ''
  if pointer ~= '' then return 'key ' .. pointer end
  -- Checks the types: a key of another type must refuse the call before the first write.
  expect_types({ wait_high, wait, wait_low }, {}, { options, max_count, priority, dispatched_at }, {})
  if count_triples(last + 1, 'expires') > 0 then expect_types({}, {}, { expires_at }, { expires }) end
  if keyed > 0 then expect_types({}, {}, { lane_of }, { lanes, turns }) end
  first_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
  local columns = { options = options, maxCount = max_count, priority = priority, dispatchedAt = dispatched_at,
    expiresAt = expires_at, expires = expires, laneOf = lane_of, lanes = lanes, turns = turns, meta = meta }
  local lists = { high = wait_high, normal = wait, low = wait_low }
  waits, soonest = place_jobs(last + 1, ids, is_fresh, word, columns, lists, delayed)
else
  redis.call('RPUSH', wait, unpack(fresh))
end
redis.call('HSET', payload, unpack(fields))
local news = {}
if not wire then
  news = { 'wire', ARGV[1] }
  if ARGV[2] ~= '1' then news[3], news[4] = 'partitions', ARGV[2] end
end
if keyed > 0 then news[#news + 1], news[#news + 2] = 'keyed', '1' end
count_new_jobs(meta, events, facts, fresh, largest, has_nodes, news)
if full and full ~= 'running' then
  -- Uses here now rest
  full = rest_of(full, now_us() / 1000)
end
-- A delayed job wakes a worker only if it is the next one due: the worker then looks again in time.
if not (paused or full) and (waits or soonest and (not first_due or soonest < first_due)) then ring_wake(wake) end
return reply
