-- Whether none of the keys is there: one question for many, and a key that is not there has no wrong type.
local function none_of(...)
  return redis.call('EXISTS', ...) == 0
end

-- Those of the keys that hold something, by `length` (HLEN, ZCARD), which refuses a key of another type before the
-- first write.
local function filled(length, ...)
  local found = {}
  if none_of(...) then return found end
  for _, key in ipairs({ ... }) do
    if redis.call(length, key) > 0 then found[#found + 1] = key end
  end
  return found
end
