-- Asks each key for something that only its own type has, so that a key of another type refuses the call with
-- WRONGTYPE before the first write.
local function expect_types(lists, sets, hashes, sorted_sets)
  for _, key in ipairs(lists) do redis.call('LLEN', key) end
  for _, key in ipairs(sets) do redis.call('SCARD', key) end
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do redis.call('ZCARD', key) end
end
