-- Queries each key with a command for its type: a key of another type then refuses the call with WRONGTYPE, before the
-- first write.
local function expect_types(lists, sets, hashes, sorted_sets)
  for _, key in ipairs(lists) do redis.call('LLEN', key) end
  for _, key in ipairs(sets) do redis.call('SCARD', key) end
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do redis.call('ZCARD', key) end
end
