-- The keys that hold something. `length` (HLEN, ZCARD) is asked of each, so that a key of another type refuses the call
-- before the first write; one EXISTS answers for all of them while none is there, and no key has a wrong type then.
local function filled(length, keys)
  local found = {}
  if redis.call('EXISTS', unpack(keys)) > 0 then
    for _, key in ipairs(keys) do
      if redis.call(length, key) > 0 then found[#found + 1] = key end
    end
  end
  return found
end
