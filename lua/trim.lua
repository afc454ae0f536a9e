-- Removes the oldest jobs of a terminal set, past its age or its count, with every column of theirs.
-- KEYS[1]  place         (zset)    ids by finish time, ms
-- KEYS[2]  meta          (hash)    event mode and total
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
-- ARGV[1]  worker        (id)
-- ARGV[2]  max age       (ms; '' for none)
-- ARGV[3]  max count     (jobs; '' for none)
-- ARGV[4]  min age       (ms: nothing younger is removed)
-- ARGV[5]  limit         (jobs a call, at most 500)
-- Returns  {'trimmed', number of jobs}
-- Emits    removed
-- Refuses  WRONGTYPE before the first write
local place, meta, events, columns = KEYS[1], KEYS[2], KEYS[3], { unpack(KEYS, 4, 12) }
local worker, max_age, max_count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local min_age, limit = tonumber(ARGV[4]), tonumber(ARGV[5])

expect_types({}, {}, columns, { place })
local event_mode = redis.call('HGET', meta, 'eventMode')
local now_ms = now_us() / 1000
local excess = max_count and redis.call('ZCARD', place) - max_count or 0
local oldest = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('%d', now_ms - min_age),
  'WITHSCORES', 'LIMIT', 0, limit)
local ids = {}
for i = 1, #oldest, 2 do
  local too_old = max_age and tonumber(oldest[i + 1]) <= now_ms - max_age
  if too_old or #ids < excess then ids[#ids + 1] = oldest[i] end
end
if #ids > 0 then
  redis.call('ZREM', place, unpack(ids))
  remove_columns(columns, ids)
  if event_mode ~= 'off' then
    emit(events, 10000, meta, 'events', #ids, worker, { 'removed', table.concat(ids, ' ') })
  end
end
return { 'trimmed', #ids }
