-- Removes the columns of the jobs. Every job has the first one, its payload. The others hold only values that differ
-- from a default, so one EXISTS usually answers for all of them.
local function remove_columns(columns, ids)
  redis.call('HDEL', columns[1], unpack(ids))
  if #columns > 1 and redis.call('EXISTS', unpack(columns, 2)) > 0 then
    for index = 2, #columns do redis.call('HDEL', columns[index], unpack(ids)) end
  end
end
