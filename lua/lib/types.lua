-- Queries each key by a command for its type. So a key of another type refuses the call (WRONGTYPE) before it writes.
local function expect_types(lists, sets, hashes, sorted_sets)
  for _, key in ipairs(lists) do redis.call('LLEN', key) end
  for _, key in ipairs(sets) do redis.call('SCARD', key) end
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do redis.call('ZCARD', key) end
end
