-- Whether the id stands behind the other one in the order of a sorted set, which is that of their bytes. Lua compares
-- by the locale of the server.
local function stands_behind(id, other)
  for at = 1, math.min(#id, #other) do
    local mine, its = string.byte(id, at), string.byte(other, at)
    if mine ~= its then return mine > its end
  end
  return #id > #other
end

-- How many members stand before (score, id), and it itself where it is there and `with` is set. It need not be there
-- any more.
local function rank_of(place, score, id, with)
  local low, high = redis.call('ZCOUNT', place, '-inf', '(' .. score), redis.call('ZCOUNT', place, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = redis.call('ZRANGE', place, middle, middle)[1]
    if stands_behind(id, other) or with and id == other then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Up to `look` ids of an ordered place behind the cursor, 'score id', with scores from `least` to `most`. Returns the
-- ids, their scores and the next cursor, '' at the end.
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

-- Up to `look` ids of the lists behind the cursor, 'list entries', the cursor behind each, and the next one: in the
-- order in which they are claimed, or from the back, where no entry that stays is missed whatever is claimed
-- meanwhile. Ghosts are looked at too.
local function waiting_page(lists, from_back, cursor, look)
  local list, seen, length = string.match(cursor, '^(%d) (%d+) ?(%d*)$')
  list, seen, length = tonumber(list) or from_back and #lists or 1, tonumber(seen) or 0, tonumber(length)
  local ids, cursors = {}, {}
  while lists[list] do
    local count = look - #ids
    local first, last, behind = seen, seen + count - 1, ''
    if from_back then
      -- What a list has grown by was added behind those that were seen.
      local now = redis.call('LLEN', lists[list])
      seen = seen + math.max(0, now - (length or now))
      first, last, behind = -seen - count, -seen - 1, ' ' .. now
    end
    local found = redis.call('LRANGE', lists[list], first, last)
    for at = 1, #found do
      ids[#ids + 1] = found[from_back and #found - at + 1 or at]
      cursors[#ids] = list .. ' ' .. seen + at .. behind
    end
    if #ids == look then return ids, cursors, cursors[look] end
    list, seen, length = list + (from_back and -1 or 1), 0, nil
  end
  return ids, cursors, ''
end

-- Some of the held ids behind the cursor, about `look`, their tokens, and the next cursor.
local function held_page(locks, cursor, look)
  local scanned = redis.call('HSCAN', locks, cursor == '' and '0' or cursor, 'COUNT', look)
  local ids, tokens = {}, {}
  for at = 1, #scanned[2], 2 do
    ids[#ids + 1], tokens[#tokens + 1] = scanned[2][at], scanned[2][at + 1]
  end
  return ids, tokens, scanned[1] == '0' and '' or scanned[1]
end
