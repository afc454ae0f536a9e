-- Removes unique keys whose job is gone. Periods that last stay, and so do young entries: a dispatch that is repeated
-- after a lost reply must find its answer.
-- Uses     now types unique
-- KEYS[1]  payload   (hash)  column
-- KEYS[2]  unique    (hash)  unique key -> its entry: see lib/unique.lua
-- KEYS[3]  uniqueOf  (hash)  id -> unique key
-- ARGV[1]  cursor    (of the call before; 0 to begin)
-- ARGV[2]  count     (how many buckets to look at, at most 500)
-- ARGV[3]  min age   (ms: an entry that was written later stays)
-- Returns  {'trimmed', cursor (0: the end), how many jobs were read, how many of them were removed}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local cursor, count, min_age = ARGV[1], ARGV[2], tonumber(ARGV[3])
expect_types({}, {}, { payload, unique }, {})
local scanned, _, now_ms = redis.call('HSCAN', unique_of, cursor, 'COUNT', count), now_us()
local named, gone, free = scanned[2], {}, {}
for at = 1, #named, 2 do
  local id, key = named[at], named[at + 1]
  if redis.call('HEXISTS', payload, id) == 0 then
    local entry = entry_of(redis.call('HGET', unique, key))
    if entry and entry.id ~= id then
      gone[#gone + 1] = id
    elseif not entry or now_ms - entry.at >= min_age and not (entry.mode == 'period' and now_ms < entry.over) then
      gone[#gone + 1], free[#free + 1] = id, key
    end
  end
end
if #free > 0 then redis.call('HDEL', unique, unpack(free)) end
if #gone > 0 then redis.call('HDEL', unique_of, unpack(gone)) end
return { 'trimmed', scanned[1], #named / 2, #gone }
