-- A counter column as a number: 0 if it is not set, nil if it is not a count. tonumber alone accepts 1.5, nan, 0x10 and
-- numbers that HINCRBY refuses in the middle of a script.
local function count_of(value)
  if not value then return 0 end
  return #value <= 9 and string.match(value, '^%d+$') and tonumber(value) or nil
end
