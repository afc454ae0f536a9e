-- Which of the jobs are in a terminal set: a table with true at their index. Raises WRONGTYPE, before the
-- caller's first write, when one of the sets is of another type.
local function terminal_of(completed, failed, cancelled, ids)
  local found = {}
  for _, place in ipairs({ completed, failed, cancelled }) do
    if redis.call('ZCARD', place) > 0 then
      local scores = redis.call('ZMSCORE', place, unpack(ids))
      for i = 1, #ids do
        if scores[i] then found[i] = true end
      end
    end
  end
  return found
end
