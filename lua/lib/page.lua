-- Whether the id sorts after the other one in a sorted set, which compares bytes. Lua compares by locale.
local function sorts_after(id, other)
  for at = 1, math.min(#id, #other) do
    local mine, its = string.byte(id, at), string.byte(other, at)
    if mine ~= its then return mine > its end
  end
  return #id > #other
end

-- How many members sort before (score, id), which may have been removed; with `with` the member itself counts too.
local function rank_of(place, score, id, with)
  local low, high = redis.call('ZCOUNT', place, '-inf', '(' .. score), redis.call('ZCOUNT', place, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = redis.call('ZRANGE', place, middle, middle)[1]
    if sorts_after(id, other) or with and id == other then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Reads up to `look` ids of a sorted set after the cursor ('score id'), with scores from `least` to `most`. Returns the
-- ids, their scores and the next cursor ('' at the end).
local function ordered_page(place, newest, cursor, look, least, most)
  local low = redis.call('ZCOUNT', place, '-inf', '(' .. least)
  local high = low + redis.call('ZCOUNT', place, least, most)
  local score, id = string.match(cursor, '^(%S+) (%S+)$')
  if score and newest then high = math.min(high, rank_of(place, score, id, false)) end
  if score and not newest then low = math.max(low, rank_of(place, score, id, true)) end
  if low >= high then return {}, {}, '' end
  local from = newest and math.max(low, high - look) or low
  local found = redis.call('ZRANGE', place, from, math.min(high, from + look) - 1, 'WITHSCORES')
  local ids, scores = {}, {}
  for at = 1, #found, 2 do
    local index = newest and (#found - at + 1) / 2 or (at + 1) / 2
    ids[index], scores[index] = found[at], found[at + 1]
  end
  local is_end = high - low <= look
  return ids, scores, is_end and '' or scores[#ids] .. ' ' .. ids[#ids]
end

-- Reads up to `look` ids of the lists after the cursor ('list entries'), in claim order, including tombstones. Returns
-- the ids, the cursor after each, and the next cursor.
local function waiting_page(lists, cursor, look)
  local list, seen = string.match(cursor, '^(%d) (%d+)$')
  list, seen = tonumber(list) or 1, tonumber(seen) or 0
  local ids, cursors = {}, {}
  while lists[list] do
    local found = redis.call('LRANGE', lists[list], seen, seen + look - #ids - 1)
    for at = 1, #found do ids[#ids + 1], cursors[#cursors + 1] = found[at], list .. ' ' .. seen + at end
    if #ids == look then return ids, cursors, cursors[look] end
    list, seen = list + 1, 0
  end
  return ids, cursors, ''
end

-- The same from the back, last list first, without missing an entry that stays. New entries at the back move the others
-- away from the end; changes at the front do not. So the cursor ('list entries id') also has the id that was read last,
-- which is where it was or further from the end. If it is gone, all entries before it are gone too. Some entries may be
-- read twice. A page may be empty although others follow.
local function waiting_page_from_back(lists, cursor, look)
  local list, seen, last = string.match(cursor, '^(%d) (%d+) ?(.*)$')
  list, seen, last = tonumber(list) or #lists, tonumber(seen) or 0, last ~= '' and last or nil
  local ids, cursors = {}, {}
  while lists[list] do
    local count = look - #ids + (last and 10 * BATCH or 0)
    local found = redis.call('LRANGE', lists[list], -seen - count, -seen - 1)
    for at = #found, 1, -1 do
      seen = seen + 1
      if last then
        if found[at] == last then last = nil end
      elseif #ids < look then
        ids[#ids + 1] = found[at]
        cursors[#ids] = list .. ' ' .. seen - 1 .. ' ' .. found[at]
      end
    end
    if #ids == look then return ids, cursors, cursors[look] end
    if #found < count then
      list, seen, last = list - 1, 0, nil
    elseif last then
      return ids, cursors, list .. ' ' .. seen .. ' ' .. last
    end
  end
  return ids, cursors, ''
end

-- Reads about `look` held ids after the cursor. Returns the ids, their values in this hash, and the next cursor.
local function held_page(held, cursor, look)
  local scanned = redis.call('HSCAN', held, cursor == '' and '0' or cursor, 'COUNT', look)
  local ids, values = {}, {}
  for at = 1, #scanned[2], 2 do
    ids[#ids + 1], values[#values + 1] = scanned[2][at], scanned[2][at + 1]
  end
  return ids, values, scanned[1] == '0' and '' or scanned[1]
end

-- Reads up to `look` ids of the lanes, key by key. The cursor is 'l', then - or place, id and key of the last entry. It
-- needs no entry that is still there, so none is missed.
local function lanes_page(lanes, newest, cursor, look)
  local place, last_id, last_key = string.match(cursor, '^l (%d+) (%S+) (.*)$')
  local last = place and '(' .. last_key .. '\0' .. place .. '\0' .. last_id
  local range = { last or (newest and '+' or '-'), newest and '-' or '+', 'BYLEX' }
  if newest then range[4] = 'REV' end
  range[#range + 1], range[#range + 2], range[#range + 3] = 'LIMIT', 0, look
  local entries, ids, cursors = redis.call('ZRANGE', lanes, unpack(range)), {}, {}
  for at, entry in ipairs(entries) do
    local key, id = names_in_lane(entry, true)
    ids[at], cursors[at] = id, 'l ' .. string.sub(entry, #key + 2, #key + 21) .. ' ' .. id .. ' ' .. key
  end
  return ids, cursors, #entries == look and cursors[look] or ''
end
