-- Returns the keys that exist, as a list and by key. Asks by `length` (HLEN, ZCARD), which refuses a key of another
-- type before the first write. Give likely keys first: when as many are found as exist, the others need no query.
local function filled(length, ...)
  local found, count = {}, redis.call('EXISTS', ...)
  if count == 0 then return found end
  for _, key in ipairs({ ... }) do
    if #found == count then break end
    if redis.call(length, key) > 0 then found[#found + 1], found[key] = key, key end
  end
  return found
end
