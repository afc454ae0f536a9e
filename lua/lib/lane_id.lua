-- The key and the id in an entry of `laneHeld`; in one of `lanes` the id follows a place of 20 digits and a zero byte.
local function names_in_lane(entry, has_place)
  local zero = string.find(entry, '%z') or #entry + 1
  return string.sub(entry, 1, zero - 1), string.sub(entry, zero + (has_place and 22 or 1))
end
