-- The keys without repetition.
local function distinct(keys)
  local found, seen = {}, {}
  for _, key in ipairs(keys) do
    if key and not seen[key] then found[#found + 1], seen[key] = key, true end
  end
  return found
end

-- Gives a turn to those of the keys that are full. Returns whether there were any.
local function end_full(turns, meta, keys)
  local words = {}
  -- Full keys are the last ones.
  local last = #keys > 0 and redis.call('ZRANGE', turns, -1, -1, 'WITHSCORES')[2]
  if not last or tonumber(last) < FULL then return false end
  for at, score in ipairs(redis.call('ZMSCORE', turns, unpack(keys))) do
    if score and tonumber(score) >= FULL then words[#words + 1], words[#words + 2] = turn_now(meta), keys[at] end
  end
  if #words > 0 then redis.call('ZADD', turns, unpack(words)) end
  return #words > 0
end

-- Gives back the slots of jobs that are no longer held. Returns whether a full key has its turn again.
local function leave_lanes(places, ids)
  if #ids == 0 or redis.call('EXISTS', places.lane_held) == 0 then return false end
  local keys, gone = redis.call('HMGET', places.lane_of, unpack(ids)), {}
  for at, id in ipairs(ids) do
    if keys[at] then gone[#gone + 1] = keys[at] .. '\0' .. id end
  end
  if #gone == 0 then return false end
  redis.call('ZREM', places.lane_held, unpack(gone))
  return end_full(places.turns, places.meta, distinct(keys))
end
