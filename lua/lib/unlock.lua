-- Takes a job out of all that is kept of one that somebody holds.
local function unlock(hashes, sets, id)
  for _, hash in ipairs(hashes) do redis.call('HDEL', hash, id) end
  for _, set in ipairs(sets) do redis.call('SREM', set, id) end
end
