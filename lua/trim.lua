-- Removes the oldest jobs of a terminal set, past the age or the count that the task declares, with every column.
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
-- KEYS[13] deferred      (hash)    column
-- ARGV[1]  worker        (id)
-- ARGV[2]  place         (Completed, Failed or Cancelled, as the names of the options end)
-- ARGV[3]  min age       (ms: nothing younger is removed, unless the task keeps nothing)
-- ARGV[4]  limit         (jobs a call, at most 500; beyond the first no more than 512 KiB of payloads and results)
-- Returns  {'trimmed', number of jobs, 1 when others are to follow, else 0}
-- Returns  {'undeclared'}: the server has lost the options of the task; nothing is removed
-- Emits    removed
-- Refuses  WRONGTYPE before the first write
local place, meta, events, columns = KEYS[1], KEYS[2], KEYS[3], { unpack(KEYS, 4, 13) }
local worker, name, min_age, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local settings = redis.call('HMGET', meta, 'declaredAt', 'keep' .. name, 'maxAge' .. name, 'maxCount' .. name,
  'eventMode')
if not settings[1] then return { 'undeclared' } end
expect_types({}, {}, columns, { place })
local max_age, max_count = tonumber(settings[3]), tonumber(settings[4])
-- A task that keeps nothing may have kept some before.
if settings[2] == '0' then max_age, min_age = 0, 0 end
local now_ms = now_us() / 1000
local excess = max_count and redis.call('ZCARD', place) - max_count or 0
local oldest = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('%d', now_ms - min_age),
  'WITHSCORES', 'LIMIT', 0, limit)
local ids, bytes, more = {}, 0, 0
for i = 1, #oldest, 2 do
  local id = oldest[i]
  local too_old = max_age and tonumber(oldest[i + 1]) <= now_ms - max_age
  if not too_old and #ids >= excess then break end
  bytes = bytes + redis.call('HSTRLEN', columns[1], id) + redis.call('HSTRLEN', columns[4], id)
  if bytes > 524288 and #ids > 0 then
    more = 1
    break
  end
  ids[#ids + 1] = id
  if #ids == limit then more = 1 end
end
if #ids > 0 then
  redis.call('ZREM', place, unpack(ids))
  remove_columns(columns, ids)
  if settings[5] ~= 'off' then
    emit(events, 10000, meta, 'events', #ids, worker, { 'removed', table.concat(ids, ' ') })
  end
end
return { 'trimmed', #ids, more }
