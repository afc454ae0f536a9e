-- These fields of a hash, by name; false where one is missing.
local function fields_of(key, names)
  local fields = {}
  for at, value in ipairs(redis.call('HMGET', key, unpack(names))) do fields[names[at]] = value end
  return fields
end
