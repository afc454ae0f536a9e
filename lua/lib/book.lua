-- Buffers reads and writes of the hashes and sorted sets in `keys`, the table of all keys of the script: each field is
-- read once, and written once, together with others. A field or member that is missing, or will be removed, is false.
-- The pages by the name of the key: the values that are known, the fields to write, and the members to move with their
-- scores. A page is made when it is first used.
local PAGES = { __index = function(pages, name)
  pages[name] = {}
  return pages[name]
end }
local known_of, fresh_of = setmetatable({}, PAGES), setmetatable({}, PAGES)
local moved_of, scores_of = setmetatable({}, PAGES), setmetatable({}, PAGES)

-- Reads the fields that are not known yet.
local function fetch(keys, name, fields)
  local known, missing = known_of[name], {}
  for _, field in ipairs(fields) do
    if known[field] == nil then missing[#missing + 1] = field end
  end
  for from = 1, #missing, 1000 do
    local values = redis.call('HMGET', keys[name], unpack(missing, from, math.min(#missing, from + 999)))
    for place, value in ipairs(values) do known[missing[from + place - 1]] = value end
  end
end

local function read(keys, name, field)
  local known = known_of[name]
  local value = known[field]
  if value == nil then
    value = redis.call('HGET', keys[name], field)
    known[field] = value
  end
  return value
end

-- The value of a field if this call knows it.
local function known_value(name, field)
  return known_of[name][field]
end

local function write(name, field, value)
  local fresh = fresh_of[name]
  if not fresh[field] then fresh[#fresh + 1], fresh[field] = field, true end
  known_of[name][field] = value
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

-- Takes back what `put` has set in this call, for a member that was not there before.
local function take_back(name, member)
  scores_of[name][member] = nil
end

-- Calls the command with these words in pages: a call takes a limited number of arguments.
local function in_pages(command, key, words)
  for from = 1, #words, 2000 do redis.call(command, key, unpack(words, from, math.min(#words, from + 1999))) end
end

-- Writes the fields or members that have a value, and returns those to remove. A pair of a hash is field and value, one
-- of a sorted set is score and member.
local function write_page(command, key, names, values)
  local pairs_of, count, gone, is_hash = {}, 0, {}, command == 'HSET'
  for _, name in ipairs(names) do
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

-- Refuses the call before the first write if our user lacks a right for what is buffered. The commands change nothing.
-- Only HSET is not tried, since it would change something: it comes first, before what removes.
local is_tried = false
local function try_rights(keys)
  local place, hash = next(moved_of), next(fresh_of)
  if is_tried or not place then return end
  redis.call('ZADD', keys[place], 'XX', 0, '')
  redis.call('ZREM', keys[place], '')
  if hash then redis.call('HDEL', keys[hash], '') end
  is_tried = true
end

-- Writes everything that is buffered.
local function write_all(keys)
  local gone = {}
  try_rights(keys)
  for name, fields in pairs(fresh_of) do gone[name] = write_page('HSET', keys[name], fields, known_of[name]) end
  for name, fields in pairs(gone) do in_pages('HDEL', keys[name], fields) end
  for name, members in pairs(moved_of) do
    in_pages('ZREM', keys[name], write_page('ZADD', keys[name], members, scores_of[name]))
  end
end
