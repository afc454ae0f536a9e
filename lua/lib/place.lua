-- How many of the triples have this column.
local function count_triples(at, column)
  local count = 0
  for triple = at, #ARGV, 3 do
    if ARGV[triple] == column then count = count + 1 end
  end
  return count
end

-- Puts the jobs into their lists, their lanes or `delayed`, and writes what differs from the defaults (ARGV from `at`:
-- triples column, index of the job, value). `is_fresh` has the index of each job to write. Returns whether one of them
-- may be claimed, and when the first delayed one is due.
local function place_jobs(at, ids, is_fresh, default, columns, lists, delayed)
  local delay, own, values, expires_after, key_of = {}, {}, {}, {}, {}
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
        if column == 'laneOf' then key_of[index] = value end
        local words = values[column] or {}
        words[#words + 1], words[#words + 2], values[column] = ids[index], value, words
      end
    end
  end
  local now, now_ms = now_us()
  local soonest, waits, entries, keys = nil, false, {}, {}
  local places, delays, priorities = { high = {}, normal = {}, low = {} }, {}, {}
  local ranks = { high = 1, normal = 2, low = 3 }
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
      elseif key_of[index] then
        keys[#keys + 1], entries[#entries + 1] = key_of[index], '0'
        entries[#entries + 1] = lane_entry(key_of[index], ranks[wanted] or 2, now, index, id)
      else
        local place = places[wanted] or places.normal
        place[#place + 1] = id
        waits = true
      end
    end
  end
  if soonest then redis.call('ZADD', delayed, unpack(delays)) end
  if #entries > 0 then
    redis.call('ZADD', columns.lanes, unpack(entries))
    -- A key that had no turn may start jobs. One key that may start jobs is enough to wake a worker.
    waits = give_turns(columns.turns, columns.meta, keys) > 0 or waits
    for _, score in ipairs(waits and {} or redis.call('ZMSCORE', columns.turns, unpack(keys))) do
      waits = waits or tonumber(score) < RESTING
    end
  end
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
