-- Which of the jobs are in one of the places (terminal sets that are not empty): a table with true at their index.
local function terminal_of(places, ids)
  local found = {}
  for _, place in ipairs(places) do
    local scores = redis.call('ZMSCORE', place, unpack(ids))
    for index = 1, #ids do
      if scores[index] then found[index] = true end
    end
  end
  return found
end
