-- Whether none of the keys is there: one question for many, and a key that is not there has no wrong type.
local function none_of(...)
  return redis.call('EXISTS', ...) == 0
end

-- Those of the keys that are there, by `length` (HLEN, ZCARD), which refuses a key of another type before the first
-- write. When as many are found as there are, the others need no question: the likely ones go first.
local function filled(length, ...)
  local found, count = {}, redis.call('EXISTS', ...)
  for _, key in ipairs({ ... }) do
    if #found == count then break end
    if redis.call(length, key) > 0 then found[#found + 1] = key end
  end
  return found
end

-- The key, if it is one of these.
local function one_of(found, key)
  for _, other in ipairs(found) do
    if other == key then return key end
  end
end
