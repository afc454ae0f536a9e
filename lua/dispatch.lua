-- Writes new jobs: their place in wait or delayed first, then what differs from the defaults, then the payload. A call
-- that is refused in the middle leaves an id without a payload, which a claim removes; not a job without a place.
-- KEYS[1]  payload       (hash)    id -> payload
-- KEYS[2]  completed     (zset)    duplicate check
-- KEYS[3]  failed        (zset)    duplicate check
-- KEYS[4]  cancelled     (zset)    duplicate check
-- KEYS[5]  wait          (list)    ids
-- KEYS[6]  meta          (hash)    wire version, default priority, event mode and total, largest payload
-- KEYS[7]  events        (stream)  one entry
-- KEYS[8]  wake          (zset)    marker for idle workers
-- KEYS[9]  options       (hash)    id -> overrides, JSON. Without triples this and the rest may be left out
-- KEYS[10] maxCount      (hash)    id -> max_count
-- KEYS[11] priority      (hash)    id -> high or low
-- KEYS[12] dispatchedAt  (hash)    id -> time, ms
-- KEYS[13] wait:high     (list)    ids
-- KEYS[14] wait:low      (list)    ids
-- KEYS[15] delayed       (zset)    ids by due time, ms
-- ARGV[1]  wire          (version of the caller)
-- ARGV[2]  n             (number of jobs, at most 500)
-- ARGV[3]  pairs         (n times id, payload; then triples column, index of the job, value, where column is
--                         options, maxCount, priority, dispatchedAt or delay (ms))
-- Returns  'dispatched' and, behind spaces, the index of each job that existed: it is left as it is, whatever its state
-- Returns  'more': the task has a default priority, so the call needs all keys; nothing is written
-- Emits    dispatched
-- Refuses  NEWERWIRE: the task's data was written by a newer version
local payload, wait, meta, events, wake = KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local n = tonumber(ARGV[2])
local last = 2 + 2 * n

local settings = redis.call('HMGET', meta, 'wire', 'priority', 'eventMode', 'largest')
if settings[1] ~= ARGV[1] and tonumber(settings[1] or 0) > tonumber(ARGV[1]) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. settings[1])
end
local ids = {}
for i = 1, n do ids[i] = ARGV[1 + 2 * i] end
local stored = redis.call('HMGET', payload, unpack(ids))
local terminal = terminal_of(filled('ZCARD', KEYS[2], KEYS[3], KEYS[4]), ids)
-- Plain jobs have a payload and a place in `wait`, and no more. For others types are asked for: a key of another type
-- must refuse the call before the first write.
local plain, first_due = last == #ARGV and (settings[2] or 'normal') == 'normal', nil
if not plain then
  if not KEYS[9] then return 'more' end
  expect_types({ KEYS[13], wait, KEYS[14] }, {}, { KEYS[9], KEYS[10], KEYS[11], KEYS[12] }, {})
  first_due = tonumber(redis.call('ZRANGE', KEYS[15], 0, 0, 'WITHSCORES')[2])
end

local fresh, is_fresh, reply, fields, largest = {}, {}, { 'dispatched' }, {}, 0
for i, id in ipairs(ids) do
  if stored[i] or terminal[i] or is_fresh[id] then
    reply[#reply + 1] = i
  else
    local at = #fresh + 1
    fresh[at], is_fresh[id] = id, i
    fields[2 * at - 1], fields[2 * at] = id, ARGV[2 + 2 * i]
    largest = math.max(largest, #ARGV[2 + 2 * i])
  end
end
if #fresh == 0 then return table.concat(reply, ' ') end

-- A growing command first: a server at maxmemory refuses the call whole, as does a `wait` of another type.
local waits, soonest = true, nil
if plain then
  redis.call('RPUSH', wait, unpack(fresh))
else
  local columns = { options = KEYS[9], maxCount = KEYS[10], priority = KEYS[11], dispatchedAt = KEYS[12] }
  local lists = { high = KEYS[13], normal = wait, low = KEYS[14] }
  waits, soonest = place_jobs(last + 1, ids, is_fresh, settings[2] or 'normal', columns, lists, KEYS[15])
end
redis.call('HSET', payload, unpack(fields))
if not settings[1] then redis.call('HSET', meta, 'wire', ARGV[1]) end
-- A bound for what a claim may read at once, in powers of two, so that it is seldom written.
if largest > (tonumber(settings[4]) or 0) then
  redis.call('HSET', meta, 'largest', string.format('%d', 2 ^ math.max(10, math.ceil(math.log(largest) / math.log(2)))))
end
if settings[3] ~= 'off' then
  emit(events, 10000, meta, 'events', #fresh, '', { 'dispatched', table.concat(fresh, ' ') })
end
-- A delayed job wakes a worker only when it is now the next one due: the worker then looks again in time.
if waits or not first_due or soonest < first_due then redis.pcall('ZADD', wake, 0, 'marker') end
return table.concat(reply, ' ')
