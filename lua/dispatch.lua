-- Writes new jobs: the payload first, then what differs from the defaults, then their place in wait or delayed.
-- KEYS[1]  payload       (hash)    id -> payload
-- KEYS[2]  completed     (zset)    duplicate check
-- KEYS[3]  failed        (zset)    duplicate check
-- KEYS[4]  cancelled     (zset)    duplicate check
-- KEYS[5]  options       (hash)    id -> overrides, JSON
-- KEYS[6]  maxCount      (hash)    id -> max_count
-- KEYS[7]  priority      (hash)    id -> high or low
-- KEYS[8]  dispatchedAt  (hash)    id -> time, ms
-- KEYS[9]  wait:high     (list)    ids
-- KEYS[10] wait          (list)    ids
-- KEYS[11] wait:low      (list)    ids
-- KEYS[12] delayed       (zset)    ids by due time, ms
-- KEYS[13] meta          (hash)    wire version, default priority, event mode and total
-- KEYS[14] events        (stream)  one entry
-- KEYS[15] wake          (zset)    marker for idle workers
-- ARGV[1]  wire          (version of the caller)
-- ARGV[2]  n             (number of jobs, at most 500)
-- ARGV[3]  pairs         (n times id, payload; then triples column, index of the job, value, where column is
--                         options, maxCount, priority, dispatchedAt or delay (ms))
-- Returns  {'dispatched', indexes of the jobs that existed}: such a job is left as it is, whatever its state
-- Emits    dispatched
-- Refuses  NEWERWIRE: the task's data was written by a newer version
local payload, completed, failed, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local columns = { options = KEYS[5], maxCount = KEYS[6], priority = KEYS[7], dispatchedAt = KEYS[8] }
local lists = { high = KEYS[9], normal = KEYS[10], low = KEYS[11] }
local delayed, meta, events, wake = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local wire, n = ARGV[1], tonumber(ARGV[2])
local last = 2 + 2 * n

local settings = redis.call('HMGET', meta, 'wire', 'priority', 'eventMode')
if tonumber(settings[1] or 0) > tonumber(wire) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. settings[1])
end
local ids = {}
for i = 1, n do ids[i] = ARGV[1 + 2 * i] end
local stored = redis.call('HMGET', payload, unpack(ids))
local terminal = terminal_of(filled('ZCARD', { completed, failed, cancelled }), ids)
-- Asked for their type: a key of another type must refuse the call before the first write.
if last < #ARGV or settings[2] ~= 'normal' then
  for _, list in pairs(lists) do redis.call('LLEN', list) end
  filled('HLEN', { KEYS[5], KEYS[6], KEYS[7], KEYS[8] })
else
  redis.call('LLEN', lists.normal)
end
local first_due = last < #ARGV and tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])

local fresh, is_fresh, seen, existed, fields = {}, {}, {}, {}, {}
for i = 1, n do
  local id = ids[i]
  if stored[i] or terminal[i] or seen[id] then
    existed[#existed + 1] = i
  else
    seen[id], is_fresh[i] = true, true
    fresh[#fresh + 1] = id
    fields[#fields + 1] = id
    fields[#fields + 1] = ARGV[2 + 2 * i]
  end
end
if #fresh == 0 then return { 'dispatched', existed } end

-- A growing command first: a server at maxmemory refuses the call whole.
redis.call('HSET', payload, unpack(fields))
if not settings[1] then redis.call('HSET', meta, 'wire', wire) end
local delay, own = {}, {}
for i = last + 1, #ARGV, 3 do
  local column, job, value = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  if column == 'delay' then
    delay[job] = value
  elseif is_fresh[job] then
    if column == 'priority' then own[job] = value else redis.call('HSET', columns[column], ids[job], value) end
  end
end
local now_ms, soonest = last < #ARGV and math.floor(now_us() / 1000), nil
local places, delays, priorities = { high = {}, normal = {}, low = {} }, {}, {}
for i = 1, n do
  if is_fresh[i] then
    local priority = own[i] or settings[2] or 'normal'
    if priority ~= 'normal' then
      priorities[#priorities + 1] = ids[i]
      priorities[#priorities + 1] = priority
    end
    if delay[i] then
      local due = now_ms + delay[i]
      delays[#delays + 1] = string.format('%.0f', due)
      delays[#delays + 1] = ids[i]
      if not soonest or due < soonest then soonest = due end
    else
      local place = places[priority] or places.normal
      place[#place + 1] = ids[i]
    end
  end
end
if #priorities > 0 then redis.call('HSET', columns.priority, unpack(priorities)) end
for priority, place in pairs(places) do
  if #place > 0 then redis.call('RPUSH', lists[priority], unpack(place)) end
end
if soonest then redis.call('ZADD', delayed, unpack(delays)) end
if settings[3] ~= 'off' then
  emit(events, 10000, meta, 'events', #fresh, '', { 'dispatched', table.concat(fresh, ' ') })
end
-- A delayed job wakes a worker only when it is now the next one due: the worker then looks again in time.
if #delays < 2 * #fresh or not first_due or soonest < first_due then
  redis.pcall('ZADD', wake, 0, 'marker')
end
return { 'dispatched', existed }
