-- Removes what jobs that are gone have left in the keys about lanes, and gives each key with waiting jobs its turn.
-- Uses     now wake steps lanes leave_lanes own_settings lane_id
-- KEYS[1]  payload     (hash)  column
-- KEYS[2]  locks       (hash)  id -> token
-- KEYS[3]  meta        (hash)  limits of each key, virtual time
-- KEYS[4]  wake        (zset)  marker for idle workers
-- KEYS[5]  lanes       (zset)  entries of waiting jobs with keys: see lib/lanes.lua
-- KEYS[6]  laneOf      (hash)  id -> key
-- KEYS[7]  turns       (zset)  keys by turn
-- KEYS[8]  laneHeld    (zset)  entries of held jobs with keys
-- KEYS[9]  laneStarts  (hash)  key -> starts of the last window: see lib/steps.lua
-- KEYS[10] laneOwn     (hash)  key -> settings written at run time: see lib/own_settings.lua
-- ARGV[1]  place       (laneOf, laneStarts, laneHeld or lanes)
-- ARGV[2]  cursor      (of the call before; '' to begin)
-- ARGV[3]  count       (about how many entries to look at, at most 500)
-- Returns  {'trimmed', cursor ('': the end), how many were read, how many of them were removed or repaired}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local place, cursor, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local read, mended = 0, 0
for _, key in ipairs({ payload, locks, lane_of, lane_starts, lane_own }) do redis.call('HLEN', key) end
for _, key in ipairs({ lanes, turns, lane_held }) do redis.call('ZCARD', key) end

-- The fields of a hash after the cursor that are to be removed.
local function scan_hash(hash, is_gone)
  local scanned, gone = redis.call('HSCAN', hash, cursor == '' and '0' or cursor, 'COUNT', count), {}
  for at = 1, #scanned[2], 2 do
    if is_gone(scanned[2][at], scanned[2][at + 1]) then gone[#gone + 1] = scanned[2][at] end
  end
  cursor, read, mended = scanned[1] == '0' and '' or scanned[1], #scanned[2] / 2, #gone
  if #gone > 0 then redis.call('HDEL', hash, unpack(gone)) end
end

if place == 'laneOf' then
  scan_hash(lane_of, function(id) return redis.call('HEXISTS', payload, id) == 0 end)
elseif place == 'laneStarts' then
  local now, window = now_us(), tonumber(string.match(redis.call('HGET', meta, 'perKey') or '', '(%d+)$')) or 0
  scan_hash(lane_starts, function(key, starts)
    local own = own_settings(lane_own, { key, starts })[key]
    local _, used = steps_within(starts, tonumber(own and own.window) or window, math.huge, now)
    return used == 0
  end)
elseif place == 'laneHeld' then
  -- The slots of jobs whose locks were lost.
  local from = cursor == '' and '-' or '(' .. string.sub(cursor, 2)
  local entries, gone, keys = redis.call('ZRANGE', lane_held, from, '+', 'BYLEX', 'LIMIT', 0, count), {}, {}
  for _, entry in ipairs(entries) do
    local key, id = names_in_lane(entry)
    if redis.call('HEXISTS', locks, id) == 0 then gone[#gone + 1], keys[#keys + 1] = entry, key end
  end
  cursor, read, mended = #entries == count and 'k' .. entries[count] or '', #entries, #gone
  if #gone > 0 then redis.call('ZREM', lane_held, unpack(gone)) end
  if end_full(turns, meta, distinct(keys)) then ring_wake(wake) end
else
  -- A shrinking command first: only then a server at maxmemory accepts the others.
  redis.call('ZREM', lanes, '')
  local keys, from = {}, cursor == '' and '-' or '(' .. string.sub(cursor, 2) .. '\1'
  repeat
    local entry = redis.call('ZRANGE', lanes, from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    local key = entry and names_in_lane(entry)
    keys[#keys + 1], from = key, key and '(' .. key .. '\1'
  until not key or #keys == count
  cursor, read = #keys == count and 'k' .. keys[count] or '', #keys
  mended = #keys > 0 and give_turns(turns, meta, keys) or 0
  -- A key that is full without a held job has lost its slots: no job will give it a turn.
  local free, words = {}, {}
  for at, key in ipairs(keys) do words[2 * at - 1], words[2 * at] = key, '' end
  local own = own_settings(lane_own, words)
  for _, key in ipairs(keys) do
    local held = redis.call('ZLEXCOUNT', lane_held, '[' .. key .. '\0', '(' .. key .. '\1')
    if held == 0 and not (own[key] and own[key].paused) then free[#free + 1] = key end
  end
  if end_full(turns, meta, free) then mended = mended + 1 end
  -- If the server lost the flag, no claim looks at the lanes.
  if #keys > 0 then mended = mended + redis.call('HSETNX', meta, 'keyed', '1') end
  if mended > 0 then ring_wake(wake) end
end
return { 'trimmed', cursor, read, mended }
