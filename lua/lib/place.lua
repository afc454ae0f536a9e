-- Whether one of the triples (ARGV from `at`) has this column.
local function has_triple(at, column)
  for triple = at, #ARGV, 3 do
    if ARGV[triple] == column then return true end
  end
  return false
end

-- Puts the jobs into their lists or `delayed`, and writes what differs from the defaults (ARGV from `at`: triples
-- column, index of the job, value). `is_fresh` has the index of each job to write. Returns whether one of them waits,
-- and when the first delayed one is due.
local function place_jobs(at, ids, is_fresh, default, columns, lists, delayed)
  local delay, own, values, expires_after = {}, {}, {}, {}
  for triple = at, #ARGV, 3 do
    local column, index, value = ARGV[triple], tonumber(ARGV[triple + 1]), ARGV[triple + 2]
    if column == 'delay' then
      delay[index] = value
    elseif is_fresh[ids[index]] == index then
      if column == 'priority' then
        own[index] = value
      elseif column == 'expires' then
        expires_after[#expires_after + 1] = { ids[index], value }
      else
        local words = values[column] or {}
        words[#words + 1], words[#words + 2], values[column] = ids[index], value, words
      end
    end
  end
  local now_ms, soonest, waits = math.floor(now_us() / 1000), nil, false
  local places, delays, priorities = { high = {}, normal = {}, low = {} }, {}, {}
  for index, id in ipairs(ids) do
    if is_fresh[id] == index then
      local wanted = own[index] or default
      if wanted ~= 'normal' then
        priorities[#priorities + 1] = id
        priorities[#priorities + 1] = wanted
      end
      if delay[index] then
        local due = now_ms + delay[index]
        delays[#delays + 1] = string.format('%d', due)
        delays[#delays + 1] = id
        if not soonest or due < soonest then soonest = due end
      else
        local place = places[wanted] or places.normal
        place[#place + 1] = id
        waits = true
      end
    end
  end
  if soonest then redis.call('ZADD', delayed, unpack(delays)) end
  for _, pair in ipairs(expires_after) do
    local expires, over = columns.expires, string.format('%d', now_ms + pair[2])
    redis.call('ZADD', expires, over, pair[1])
    redis.call('HSET', columns.expiresAt, pair[1], over)
  end
  for wanted, place in pairs(places) do
    if #place > 0 then redis.call('RPUSH', lists[wanted], unpack(place)) end
  end
  if #priorities > 0 then redis.call('HSET', columns.priority, unpack(priorities)) end
  for column, words in pairs(values) do redis.call('HSET', columns[column], unpack(words)) end
  return waits, soonest
end
