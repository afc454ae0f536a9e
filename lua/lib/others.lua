-- Returns when the next delayed job is due, if any; false if other jobs matter to this call: a delayed job is due (by
-- `until_ms`, if the call claims), or one of the starting jobs has ended or has one of the columns that a run needs.
-- `columns`: those that hold something, by key (see filled).
local function due_if_plain(candidates, delayed, ended, columns, of_runs, starting, until_ms)
  redis.call('SCARD', candidates)
  local next_due = tonumber(redis.call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2])
  if until_ms and next_due and next_due <= until_ms then return false end
  if #starting == 0 then return next_due end
  local found = {}
  for _, set in ipairs(ended) do found[#found + 1] = redis.call('ZMSCORE', set, unpack(starting)) end
  for _, column in ipairs(of_runs) do
    if columns[column] then found[#found + 1] = redis.call('HMGET', column, unpack(starting)) end
  end
  for _, values in ipairs(found) do
    for at = 1, #starting do
      if values[at] then return false end
    end
  end
  return next_due
end
