-- Which of the jobs are in one of these terminal sets: a table with true at their index.
local function terminal_of(places, ids)
  local found = {}
  for at = 1, #places do
    local scores = redis.call('ZMSCORE', places[at], unpack(ids))
    for index = 1, #ids do
      if scores[index] then found[index] = true end
    end
  end
  return found
end
