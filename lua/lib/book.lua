-- Buffers reads and writes of the hashes and sorted sets in `keys`, the table of all keys of the script: each field is
-- read once, and written once, together with others. A field or member that is missing, or will be removed, is false.
-- The pages by the name of the key: the values that are known, the fields to write, and the members to move with their
-- scores. A page is made when it is first used.
local PAGES = { __index = function(of, name)
  local page = {}
  of[name] = page
  return page
end }
local function pages()
  return setmetatable({}, PAGES)
end
local known_of, fresh_of, moved_of, scores_of, is_read = pages(), pages(), pages(), pages(), {}

-- Reads the fields that are not known yet.
local function fetch(keys, name, fields)
  local known, missing, count = known_of[name], {}, 0
  for at = 1, #fields do
    local field = fields[at]
    if known[field] == nil then
      count = count + 1
      missing[count], known[field] = field, false
    end
  end
  is_read[name] = is_read[name] or count > 0
  for from = 1, count, 1000 do
    local values = redis.call('HMGET', keys[name], unpack(missing, from, math.min(count, from + 999)))
    for place = 1, #values do known[missing[from + place - 1]] = values[place] end
  end
end

local function read(keys, name, field)
  local known = known_of[name]
  local value = known[field]
  if value == nil then
    value = redis.call('HGET', keys[name], field)
    known[field], is_read[name] = value, true
  end
  return value
end

-- The value of a field if this call knows it.
local function known_value(name, field)
  return known_of[name][field]
end

local function write(name, field, value)
  local fresh, values = fresh_of[name], known_of[name]
  if not fresh[field] then
    fresh[#fresh + 1] = field
    fresh[field] = true
  end
  values[field] = value
end

-- Sets the score of a member of a sorted set, a time in ms; false removes it.
local time_put, stamp
local function put(name, member, time)
  local scores = scores_of[name]
  if scores[member] == nil then
    local moved = moved_of[name]
    moved[#moved + 1] = member
  end
  if time and time ~= time_put then time_put, stamp = time, string.format('%d', time) end
  scores[member] = time and stamp
end

-- Calls the command with these words in pages: a call takes a limited number of arguments.
local function in_pages(command, key, words)
  for from = 1, #words, 2000 do redis.call(command, key, unpack(words, from, math.min(#words, from + 1999))) end
end

-- Writes the fields or members that have a value, and returns those to remove. A pair of a hash is field and value, one
-- of a sorted set is score and member.
local function write_page(command, key, names, values)
  local pairs_of, count, gone, is_hash = {}, 0, {}, command == 'HSET'
  for at = 1, #names do
    local name = names[at]
    local value = values[name]
    if value == false then
      gone[#gone + 1] = name
    elseif value and is_hash then
      pairs_of[count + 1], pairs_of[count + 2], count = name, value, count + 2
    elseif value then
      pairs_of[count + 1], pairs_of[count + 2], count = value, name, count + 2
    end
  end
  in_pages(command, key, pairs_of)
  return gone
end

-- Refuses the call before the first write if a key to be written has another type, or if our user lacks a right for
-- what is buffered. The commands change nothing. Only HSET is not tried, since it would change something: it comes
-- first, before what removes.
local is_tried = false
local function try_writes(keys)
  local place, hash = next(moved_of), next(fresh_of)
  if is_tried then return end
  if place then redis.call('ZADD', keys[place], 'XX', '0', '') end
  for name in pairs(moved_of) do redis.call('ZREM', keys[name], '') end
  for name in pairs(fresh_of) do
    if name == hash or not is_read[name] then redis.call('HDEL', keys[name], '') end
  end
  is_tried = true
end

-- Writes everything that is buffered.
local function write_all(keys)
  local gone = {}
  try_writes(keys)
  for name, fields in pairs(fresh_of) do gone[name] = write_page('HSET', keys[name], fields, known_of[name]) end
  for name, fields in pairs(gone) do in_pages('HDEL', keys[name], fields) end
  for name, members in pairs(moved_of) do
    in_pages('ZREM', keys[name], write_page('ZADD', keys[name], members, scores_of[name]))
  end
end
