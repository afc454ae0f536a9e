-- Puts the jobs into a terminal set, with what is to be kept of each (column, {id, value, id, value ..}); or
-- removes them at once when the task keeps none (keep is '0'). Nothing else adds to a terminal set.
local function finish(place, keep, now_ms, columns, ids, column, values)
  if keep == '0' then return remove_columns(columns, ids) end
  if #values > 0 then redis.call('HSET', column, unpack(values)) end
  local entries, score = {}, string.format('%d', now_ms)
  for index = 1, #ids do
    entries[2 * index - 1] = score
    entries[2 * index] = ids[index]
  end
  redis.call('ZADD', place, unpack(entries))
end
