-- Buffers reads and writes of the hashes and sorted sets in `keys`, the table of all keys of the script: each field is
-- read once, and written once, together with others. A field or member that is missing, or will be removed, is false.
local function page_of(keys, book, name)
  local page = keys[book] and keys[book][name]
  if page then return page end
  keys[book] = keys[book] or {}
  keys[book][name] = {}
  return keys[book][name]
end

-- Reads the fields that are not known yet.
local function fetch(keys, name, fields)
  local known, missing = page_of(keys, 'known', name), {}
  for _, field in ipairs(fields) do
    if known[field] == nil then missing[#missing + 1] = field end
  end
  for from = 1, #missing, 1000 do
    local last = math.min(#missing, from + 999)
    for place, value in ipairs(redis.call('HMGET', keys[name], unpack(missing, from, last))) do
      known[missing[from + place - 1]] = value
    end
  end
end

local function read(keys, name, field)
  local known = page_of(keys, 'known', name)
  if known[field] == nil then known[field] = redis.call('HGET', keys[name], field) end
  return known[field]
end

local function write(keys, name, field, value)
  local fresh = page_of(keys, 'fresh', name)
  if fresh[field] == nil then fresh[#fresh + 1] = field end
  fresh[field] = true
  page_of(keys, 'known', name)[field] = value
end

-- Sets the score of a member of a sorted set; false removes it.
local function put(keys, name, member, time)
  local fresh, scores = page_of(keys, 'moved', name), page_of(keys, 'scores', name)
  if scores[member] == nil then fresh[#fresh + 1] = member end
  if time and time ~= keys.time then keys.time, keys.stamp = time, string.format('%d', time) end
  scores[member] = time and keys.stamp
end

-- Calls the command with these words in pages: a call takes a limited number of arguments.
local function in_pages(command, key, words)
  for from = 1, #words, 2000 do redis.call(command, key, unpack(words, from, math.min(#words, from + 1999))) end
end

-- Writes the names with their values to a hash or sorted set. Returns the names without a value, to be removed.
local function write_page(key, names, values, is_sorted)
  local kept, gone = {}, {}
  for _, name in ipairs(names) do
    local value = values[name]
    if value then
      kept[#kept + 1], kept[#kept + 2] = is_sorted and value or name, is_sorted and name or value
    else
      gone[#gone + 1] = name
    end
  end
  in_pages(is_sorted and 'ZADD' or 'HSET', key, kept)
  return gone
end

-- Writes everything that is buffered. A user without one of the rights is refused before anything is written: the first
-- three commands change nothing, and HSET comes before what removes.
local function write_all(keys)
  local places, gone = keys.moved and keys[next(keys.moved)], {}
  if places then
    redis.call('ZADD', places, 'XX', 0, '')
    redis.call('ZREM', places, '')
    if keys.fresh then redis.call('HDEL', keys[next(keys.fresh)], '') end
  end
  for name, fields in pairs(keys.fresh or {}) do gone[name] = write_page(keys[name], fields, keys.known[name]) end
  for name, fields in pairs(gone) do in_pages('HDEL', keys[name], fields) end
  for name, members in pairs(keys.moved or {}) do
    in_pages('ZREM', keys[name], write_page(keys[name], members, keys.scores[name], true))
  end
  keys.fresh, keys.moved, keys.scores = nil, nil, nil
end
