-- Which of these list entries are tombstones: those of ids in `tombstones` whose job does not wait, and all but the
-- first entry of a job that waits.
local function spare_of(ids, tombstones, payload, locks, places)
  local spare, marked, waits = {}, {}, {}
  local known = #ids > 0 and redis.call('HLEN', tombstones) > 0 and redis.call('HMGET', tombstones, unpack(ids)) or {}
  for at, id in ipairs(ids) do
    if known[at] then marked[#marked + 1] = id end
  end
  if #marked == 0 then return spare end
  for at, state in ipairs((states_of(payload, locks, places, marked))) do waits[marked[at]] = state == 'waiting' end
  for at, id in ipairs(ids) do
    if known[at] then spare[at], waits[id] = not waits[id], false end
  end
  return spare
end
