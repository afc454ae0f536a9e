-- Returns the keys that exist, by `length` (HLEN, ZCARD), which refuses a key of another type before the first write.
-- Give likely keys first: when as many are found as exist, the others need no query.
local function filled(length, ...)
  local found, count = {}, redis.call('EXISTS', ...)
  if count == 0 then return found end
  for _, key in ipairs({ ... }) do
    if #found == count then break end
    if redis.call(length, key) > 0 then found[#found + 1] = key end
  end
  return found
end

-- Returns the key if it is in the list.
local function one_of(found, key)
  for _, other in ipairs(found) do
    if other == key then return key end
  end
end
