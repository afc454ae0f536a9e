-- Where the waiting jobs of `settle_keyed` are: in lanes. It has the functions of `heads`, and takes its place.
--
-- Keys take turns by virtual time, as in start-time fair queueing (Goyal, Vin and Cheng, 1996). The key with the least
-- score is next, and each job that it starts moves it one further. A key that enters gets the virtual time, which each
-- claim moves by its jobs divided by the number of keys. So of K keys each starts a job within about K starts. A key of
-- weight w counts as w keys. Scores are in thousandths of a job, since whole numbers are faster.

-- The keys after those of `settle`, what this call knows, and the longest time for which a key rests without another
-- look, since its rate may have changed, ms. All functions that only this fragment calls are here too: a script has at
-- most 200 local names.
local lanes = { meta = KEYS[2], all = KEYS[38], lane_of = KEYS[39], turns = KEYS[40], lane_held = KEYS[41],
  starts = KEYS[42], own = KEYS[43], options = KEYS[19], active = KEYS[3], payload = KEYS[16],
  lists = { KEYS[7], KEYS[8], KEYS[9] }, rests = {}, read = {}, entries = {}, left_by = 0, looked_at = 60000,
  stripped = 0, weights = 0 }

local function refused_for(task)
  -- Checks the types, and a right that only this script needs, before the first write.
  expect_types(lanes.lists, { lanes.active }, { lanes.lane_of, lanes.starts, lanes.own, lanes.payload },
    { lanes.all, lanes.turns })
  redis.call('ZLEXCOUNT', lanes.lane_held, '-', '-')
  lanes.declared_at = task.declaredAt or nil
  return not task.declaredAt and 'undeclared' or nil
end

-- For how long the whole task rests, ms. A job with a key lets its key rest instead. If a job without a key is lost, it
-- may have had one.
local function asked_rest(out, places, now)
  lanes.out, lanes.places, lanes.now = out, places, now
  local longest, is_held = 0, {}
  for _, id in ipairs(#out.rests > 0 and out.all or {}) do is_held[id] = true end
  for _, rest in ipairs(out.rests) do
    local key = redis.call('HGET', lanes.lane_of, rest.id) or ''
    if key ~= '' then
      lanes.rests[key] = math.max(lanes.rests[key] or 0, rest.ms)
    elseif is_held[rest.id] then
      longest = math.max(longest, rest.ms)
    end
  end
  return longest
end

-- When an id was generated, ms: the first 48 of the 128 bits that its 22 digits in base 62 are. Nil for another id.
function lanes.time_of_id(id)
  if #id ~= 22 then return nil end
  local value = 0
  for at = 1, 22 do
    local byte = string.byte(id, at)
    local digit = byte >= 97 and byte - 61 or byte >= 65 and byte - 55 or byte - 48
    if digit < 0 or digit > 61 then return nil end
    value = value * 62 + digit
  end
  return math.floor(value / 2 ^ 80)
end

-- Moves the jobs that are in lists into lanes: those that other scripts put there, and those without a key, whose key
-- is ''. A job that has waited in a lane before thus gets its old place again.
function lanes.sort_lists(now_ms)
  local moved, entries, moved_ids, keys = {}, {}, {}, {}
  for rank, list in ipairs(lanes.lists) do
    local ids = redis.call('LRANGE', list, 0, BATCH - 1)
    if #ids > 0 then
      local own = redis.call('HMGET', lanes.lane_of, unpack(ids))
      local times = redis.call('HMGET', lanes.places.dispatched_at, unpack(ids))
      for at, id in ipairs(ids) do
        local time = math.min(tonumber(times[at]) or lanes.time_of_id(id) or now_ms, 9e12)
        local index = #entries + 1
        keys[index], moved_ids[index] = own[at] or '', id
        entries[index] = lane_entry(own[at] or '', rank, 1000 * time, index, id)
        moved[2 * index - 1], moved[2 * index] = '0', entries[index]
      end
      redis.call('LTRIM', list, #ids, -1)
    end
  end
  if #moved == 0 then return end
  -- A tombstone of the job that has the same place is its entry again.
  local same, again = redis.call('ZMSCORE', lanes.all, unpack(entries)), {}
  for at, id in ipairs(moved_ids) do
    if same[at] then again[#again + 1] = id end
  end
  count_tombstones(lanes.places.tombstones, lanes.meta, again, -1)
  redis.call('ZADD', lanes.all, unpack(moved))
  give_turns(lanes.turns, lanes.meta, distinct(keys))
end

-- Gives a turn to up to 200 keys whose scores are in this range. Returns whether there may be more.
function lanes.end_wait(from, to)
  local words = {}
  local keys = redis.call('ZRANGEBYSCORE', lanes.turns, from, string.format('%d', from + to), 'LIMIT', 0, BATCH)
  for at, key in ipairs(keys) do words[2 * at - 1], words[2 * at] = turn_now(lanes.meta), key end
  if #words > 0 then redis.call('ZADD', lanes.turns, unpack(words)) end
  return #keys == BATCH
end

-- Gives turns to keys that have rested, and once after each declaration to all that were full then: their limits may be
-- others. `fullUntil` of `meta` has the declaration, and until when keys became full that are still to be looked at.
function lanes.end_waits(now_ms, full_until)
  local declared, bound = string.match(full_until or '', '^(%d+) (%d+)$')
  if declared ~= lanes.declared_at then bound = string.format('%d', now_ms) end
  if redis.call('ZCOUNT', lanes.turns, RESTING, '+inf') > 0 then
    lanes.has_more = lanes.end_wait(RESTING, now_ms)
    if bound ~= '0' and lanes.end_wait(FULL, tonumber(bound)) then lanes.has_more = true else bound = '0' end
  else
    bound = '0'
  end
  local word = lanes.declared_at .. ' ' .. bound
  if word ~= full_until then redis.call('HSET', lanes.meta, 'fullUntil', word) end
end

-- Removes tombstones from the head of the lane: up to 200, from five lanes in a call.
function lanes.strip(lane)
  if lanes.stripped == 5 then return end
  local found = redis.call('ZRANGE', lanes.all, lane.from, lane.to, 'BYLEX', 'LIMIT', 0, 1)
  local places, ids = lanes.places, {}
  local head = found[1] and string.sub(found[1], #lane.key + 23)
  if not head or redis.call('HEXISTS', places.tombstones, head) == 0 then return end
  lanes.stripped = lanes.stripped + 1
  found = redis.call('ZRANGE', lanes.all, lane.from, lane.to, 'BYLEX', 'LIMIT', 0, BATCH)
  for at, entry in ipairs(found) do ids[at] = string.sub(entry, #lane.key + 23) end
  local counts, gone, left = redis.call('HMGET', places.tombstones, unpack(ids)), {}, {}
  local states = states_of(places.payload, places.locks, places, ids)
  for at, id in ipairs(ids) do
    left[id] = left[id] or tonumber(counts[at]) or 0
    if left[id] == 0 or states[at] == 'waiting' then break end
    left[id], gone[at] = left[id] - 1, id
  end
  if #gone > 0 then redis.call('ZREM', lanes.all, unpack(found, 1, #gone)) end
  count_tombstones(places.tombstones, lanes.meta, gone, -1)
end

-- A limit of each key, or nil.
function lanes.limit_of(most, rate, window)
  if not most then return nil end
  local limit = { most = tonumber(most), rate = tonumber(rate), window = tonumber(window) }
  if limit.rate > 0 then limit.this_step = step_of(limit.window, lanes.now) end
  return limit
end

-- The starts of these keys and scores: empty if no key has a rate.
function lanes.starts_of(ready, limit, own)
  local keys, has_rate = {}, limit and limit.rate > 0
  for at = 1, #ready, 2 do keys[#keys + 1], has_rate = ready[at], has_rate or own[ready[at]] end
  return has_rate and redis.call('HMGET', lanes.starts, unpack(keys)) or {}
end

-- Reads how many jobs of the key may be claimed now: `room`. `own` has its own settings, if any.
function lanes.read_lane(key, score, limit, own, starts)
  local lane = { key = key, score = score, room = math.huge, weight = 1, ids = {}, from = '[' .. key .. '\0',
    to = '(' .. key .. '\1' }
  if own then
    lane.weight, lane.paused = own.weight, own.paused
    if own.most then limit = lanes.limit_of(own.most, own.rate, own.window) end
  end
  if lanes.rests[key] or lane.paused then lane.room = 0 end
  if key == '' or not limit then return lane end
  lane.limit = limit
  if limit.most > 0 then
    lane.running = redis.call('ZLEXCOUNT', lanes.lane_held, lane.from, lane.to)
    lane.room = math.min(lane.room, math.max(0, limit.most - lane.running))
  end
  if limit.rate > 0 then
    lane.steps, lane.used = steps_within(starts, limit.window, limit.this_step, lanes.now)
    lane.rate, lane.room = limit.rate, math.min(lane.room, math.max(0, limit.rate - lane.used))
  end
  return lane
end

-- Reads up to `count` entries of the lane, as far as they fit into its rate. Returns how many.
function lanes.read_entries(lane, count)
  local found = redis.call('ZRANGE', lanes.all, lane.from, lane.to, 'BYLEX', 'LIMIT', 0, count + 1)
  lane.has_more = #found > count and table.remove(found) ~= nil
  lane.entries, lane.ids = found, {}
  -- Before the id are the key, a place of 20 digits, and two zero bytes.
  for at, entry in ipairs(found) do lane.ids[at] = string.sub(entry, #lane.key + 23) end
  local fit = lane.steps and lanes.has_costs and #found > 0 and costs.fit(lanes.options, lane.ids, lane) or #found
  while #found > fit do
    lane.has_more = table.remove(found) and table.remove(lane.ids) ~= nil
  end
  return fit
end

-- Removes entries in the lane of another key than that of their job. They are tombstones: an id was used again. A job
-- whose key was lost gets that of its lane again.
function lanes.drop_strays(open)
  local all, at, strays, ids, lost = {}, 0, {}, {}, {}
  for _, lane in ipairs(open) do
    for _, id in ipairs(lane.ids) do all[#all + 1] = id end
  end
  local own = #all > 0 and redis.call('HMGET', lanes.lane_of, unpack(all)) or {}
  for _, lane in ipairs(open) do
    local kept, kept_ids = {}, {}
    for which, id in ipairs(lane.ids) do
      at = at + 1
      if not own[at] and lane.key ~= '' then lost[#lost + 1], lost[#lost + 2] = id, lane.key end
      if (own[at] or lane.key) == lane.key then
        kept[#kept + 1], kept_ids[#kept_ids + 1] = lane.entries[which], id
      else
        strays[#strays + 1], ids[#ids + 1] = lane.entries[which], id
      end
    end
    lane.entries, lane.ids = kept, kept_ids
  end
  if #lost > 0 then redis.call('HSET', lanes.lane_of, unpack(lost)) end
  if #strays > 0 then redis.call('ZREM', lanes.all, unpack(strays)) end
  count_tombstones(lanes.places.tombstones, lanes.meta, ids, -1)
end

-- Decides which jobs are claimed: the keys in turn get shares by their weights, and what one cannot use goes to others.
local function read_heads(lists, want, found)
  if want == 0 then return {} end
  lanes.has_looked = true
  local now_ms, open, heads, left = math.floor(lanes.now / 1000), {}, {}, want
  -- A shrinking command first: only then a server at maxmemory accepts the others.
  redis.call('ZREM', lanes.all, '')
  lanes.left_by = #lanes.out.all
  leave_lanes(lanes, lanes.out.all)
  if redis.call('EXISTS', unpack(lanes.lists)) > 0 then lanes.sort_lists(now_ms) end
  local per_key, full_until = unpack(redis.call('HMGET', lanes.meta, 'perKey', 'fullUntil'))
  lanes.end_waits(now_ms, full_until)
  lanes.has_costs = redis.call('EXISTS', lanes.options) == 1
  local limit, weights = lanes.limit_of(string.match(per_key or '', '^(%d+) (%d+) (%d+)$')), 0
  local ready = redis.call('ZRANGEBYSCORE', lanes.turns, '-inf', '(' .. RESTING, 'WITHSCORES', 'LIMIT', 0,
    math.min(BATCH, want + 16))
  local own = own_settings(lanes.own, ready)
  -- Keys of large weights are among the first ones, so the sum is about that of all keys.
  for _, settings in pairs(own) do lanes.weights = lanes.weights + settings.weight - 1 end
  local starts = #ready > 0 and lanes.starts_of(ready, limit, own)
  for at = 1, #ready, 2 do
    if #open == want then break end
    local lane = lanes.read_lane(ready[at], tonumber(ready[at + 1]), limit, own[ready[at]], starts[(at + 1) / 2])
    lanes.read[#lanes.read + 1] = lane
    if lane.room > 0 then open[#open + 1], weights = lane, weights + lane.weight end
  end
  if redis.call('EXISTS', lanes.places.tombstones) == 1 then
    for _, lane in ipairs(open) do lanes.strip(lane) end
  end
  for _, lane in ipairs(open) do
    local share = math.max(1, math.floor(want * lane.weight / weights))
    left = left - lanes.read_entries(lane, math.min(lane.room, share, left))
  end
  for _, lane in ipairs(open) do
    local count = #lane.ids
    if left > 0 and lane.has_more and lane.room > count then
      left = left - lanes.read_entries(lane, math.min(lane.room, count + left)) + count
    end
  end
  lanes.drop_strays(open)
  for _, lane in ipairs(open) do
    for at, id in ipairs(lane.ids) do
      heads[#heads + 1], lanes.entries[#lanes.entries + 1] = id, lane.entries[at]
    end
  end
  if #heads > 0 then found.popped[lists[1]] = #heads end
  return heads
end

-- The score of the key in `turns` after `popped` of its entries were removed, `taken` of them claimed; nil if it has
-- no jobs left. A key whose entries were tombstones has had its turn as well.
function lanes.score_after(lane, taken, popped, is_empty, turn, now_ms)
  if lanes.rests[lane.key] then return RESTING + now_ms + lanes.rests[lane.key] end
  if lane.paused then return FULL + now_ms end
  if is_empty then return nil end
  local limit = lane.limit
  if lane.running and lane.running + taken >= limit.most then return FULL + now_ms end
  local needs = lane.steps and costs.missing(lane, lane.steps.used)
  if needs then
    local over = rest_until(lane.steps, limit.window, limit.rate, needs)
    return RESTING + math.min(over, now_ms + lanes.looked_at)
  end
  if popped == 0 then return lane.score end
  -- It may be late by the turn of one job, not by more.
  return math.max(lane.score, turn - 1000) + math.floor(1000 * math.max(1, taken) / lane.weight)
end

-- Removes the entries that were read, and writes what the claim changes in the lanes. `found.left` is true if another
-- key may start jobs, `found.next_turn` is when the first key has rested, ms, and `found.is_resting` says that a key
-- began to rest.
local function pop_heads(found)
  local now_ms, popped, at, all, served, tag = math.floor(lanes.now / 1000), 0, 0, 0, 0, 0
  local out, turn, is_claimed, scores, gone, held = lanes.out, tonumber(turn_now(lanes.meta)) or 0, {}, {}, {}, {}
  local started = {}
  for _, count in pairs(found.popped) do popped = popped + count end
  if popped > 0 then redis.call('ZREM', lanes.all, unpack(lanes.entries, 1, popped)) end
  if #out.all > lanes.left_by then leave_lanes(lanes, out.all) end
  for _, id in ipairs(found.ids) do is_claimed[id] = true end
  local cost_of = lanes.has_costs and costs.by_id(found) or {}
  for _, lane in ipairs(lanes.read) do
    local left, taken, starts = #lane.ids, 0, 0
    for _, id in ipairs(lane.ids) do
      at = at + 1
      if at <= popped then left = left - 1 end
      if at <= popped and is_claimed[id] then
        -- A tombstone of the job may be in the lane as well.
        taken, is_claimed[id] = taken + 1, nil
        if lane.rate then starts = starts + math.min(cost_of[id] or 1, lane.rate) end
        if lane.limit then held[#held + 1], held[#held + 2] = '0', lane.key .. '\0' .. id end
      end
    end
    if taken > 0 then all, served, tag = all + taken, served + lane.weight, math.max(tag, lane.score) end
    if lane.steps and taken > 0 then
      add_starts(lane.steps, lane.limit.this_step, starts)
      started[#started + 1], started[#started + 2] = lane.key, words_of_steps(lane.steps)
    end
    -- The job that does not fit is not the next one.
    if left > 0 then lane.needs = nil end
    local is_empty = lane.entries and left == 0 and not lane.has_more
    local score = lanes.score_after(lane, taken, #lane.ids - left, is_empty, turn, now_ms)
    if not score then
      gone[#gone + 1] = lane.key
    elseif score ~= lane.score then
      scores[#scores + 1], scores[#scores + 2] = string.format('%d', score), lane.key
      lanes.is_resting = lanes.is_resting or score >= RESTING and score < FULL
    end
    lanes.rests[lane.key] = nil
  end
  for key, ms in pairs(lanes.rests) do
    -- The rest that ends last counts.
    local before, rest = tonumber(redis.call('ZSCORE', lanes.turns, key) or 0), RESTING + now_ms + ms
    if before >= FULL or before < rest then
      scores[#scores + 1], scores[#scores + 2], lanes.is_resting = string.format('%d', rest), key, true
    end
  end
  if #gone > 0 then redis.call('ZREM', lanes.turns, unpack(gone)) end
  if #scores > 0 then redis.call('ZADD', lanes.turns, unpack(scores)) end
  if #started > 0 then redis.call('HSET', lanes.starts, unpack(started)) end
  if #held > 0 then redis.call('ZADD', lanes.lane_held, unpack(held)) end
  local ready = redis.call('ZCOUNT', lanes.turns, '-inf', '(' .. RESTING)
  if all > 0 then
    -- Keys that were not looked at may be unable to start jobs. So the time is at least that of the job that is served,
    -- and of the key that is next.
    local least = ready > 0 and tonumber(redis.call('ZRANGE', lanes.turns, 0, 0, 'WITHSCORES')[2]) or tag
    turn = math.max(turn + math.floor(1000 * all / math.max(served, ready + lanes.weights)), math.min(least, tag))
    redis.call('HSET', lanes.meta, 'turn', string.format('%d', turn))
  end
  found.left = ready > 0 or lanes.has_more or redis.call('EXISTS', unpack(lanes.lists)) > 0
  if redis.call('ZCARD', lanes.turns) > ready then
    local first = redis.call('ZRANGEBYSCORE', lanes.turns, RESTING, '(' .. FULL, 'WITHSCORES', 'LIMIT', 0, 1)[2]
    -- A call that claims nothing has not ended the rests that are over, and need not look again for them.
    if first and lanes.has_looked then found.next_turn = tonumber(first) - RESTING end
    found.is_resting = first and lanes.is_resting
  end
  -- Their keys are no longer needed. Other jobs may be retried.
  local ended = { unpack(out.completed) }
  for _, outcome in ipairs(out.drop) do ended[#ended + 1] = outcome.id end
  if #ended > 0 then redis.call('HDEL', lanes.lane_of, unpack(ended)) end
end
