-- Adds the jobs to a sorted set, all with the same score. Nothing else adds to a terminal set.
local function add_all(set, score, ids)
  local entries = {}
  for at = 1, #ids do entries[2 * at - 1], entries[2 * at] = score, ids[at] end
  redis.call('ZADD', set, unpack(entries))
end
