-- An upper bound for the payloads that a claim reads, in powers of two, so that it rarely changes.
local function bound_of(bytes)
  return 2 ^ math.max(10, math.ceil(math.log(bytes) / math.log(2)))
end
