-- Tombstones are list entries whose job no longer waits there. A job that ends while it waits leaves its entry, since a
-- search would take time in proportion to the list. `tombstones` counts them by id, and `meta` in total.

-- Adds `step` to the tombstones of these jobs: 1 for jobs that leave their lists, -1 for entries that are removed.
local function count_tombstones(tombstones, meta, ids, step)
  if #ids == 0 then return end
  local known, counts, total = redis.call('HMGET', tombstones, unpack(ids)), {}, 0
  for at, id in ipairs(ids) do
    local before = counts[id] or tonumber(known[at]) or 0
    counts[id] = math.max(0, before + step)
    total = total + counts[id] - before
  end
  local left, gone = {}, {}
  for id, count in pairs(counts) do
    if count > 0 then
      left[#left + 1], left[#left + 2] = id, count
    else
      gone[#gone + 1] = id
    end
  end
  if #left > 0 then redis.call('HSET', tombstones, unpack(left)) end
  if #gone > 0 then redis.call('HDEL', tombstones, unpack(gone)) end
  total = total + (tonumber(redis.call('HGET', meta, 'tombstones')) or 0)
  -- A wrong total is corrected when no tombstone is left.
  if redis.call('EXISTS', tombstones) == 0 then total = 0 end
  redis.call('HSET', meta, 'tombstones', string.format('%d', math.max(0, total)))
end

-- Removes tombstones from the heads of the lists, up to 200 per list. `places` are the sorted sets in which a job may
-- be instead; `outcome` has the finalizing jobs.
local function strip_tombstones(lists, tombstones, meta, payload, locks, places, outcome)
  for _, list in ipairs(lists) do
    local head = redis.call('LINDEX', list, 0)
    if head and redis.call('HEXISTS', tombstones, head) == 1 then
      local heads = redis.call('LRANGE', list, 0, BATCH - 1)
      local counts = redis.call('HMGET', tombstones, unpack(heads))
      local elsewhere, locked = terminal_of(places, heads), redis.call('HMGET', locks, unpack(heads))
      local stored = outcome and redis.call('HMGET', outcome, unpack(heads)) or {}
      local left, gone = {}, {}
      for at, id in ipairs(heads) do
        left[id] = left[id] or tonumber(counts[at]) or 0
        local waits = not (elsewhere[at] or locked[at] or stored[at]) and redis.call('HEXISTS', payload, id) == 1
        if waits or left[id] == 0 then break end
        left[id], gone[at] = left[id] - 1, id
      end
      if #gone > 0 then
        redis.call('LTRIM', list, #gone, -1)
        count_tombstones(tombstones, meta, gone, -1)
      end
    end
  end
end
