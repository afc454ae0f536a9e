-- Removes a job from all keys about held jobs. Returns its id.
local function unlock(hashes, sets, id)
  for _, hash in ipairs(hashes) do redis.call('HDEL', hash, id) end
  for _, set in ipairs(sets) do redis.call('SREM', set, id) end
  return id
end
