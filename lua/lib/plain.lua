-- The parts of settle_plain for a task that has other jobs too: delayed ones, or some with columns of their own.

-- Returns when the next delayed job is due, if any; false if other jobs matter to this call: a delayed job is due, or a
-- head of the list has ended or has one of the columns that a run needs. `columns` are those that hold something.
local function due_beside(candidates, delayed, ended, columns, of_runs, heads, wants, now_ms)
  redis.call('SCARD', candidates)
  local next_due = tonumber(redis.call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2])
  if wants and next_due and next_due <= now_ms then return false end
  if #heads == 0 then return next_due end
  local found = {}
  for _, set in ipairs(ended) do found[#found + 1] = redis.call('ZMSCORE', set, unpack(heads)) end
  for _, column in ipairs(of_runs) do
    if one_of(columns, column) then found[#found + 1] = redis.call('HMGET', column, unpack(heads)) end
  end
  for _, values in ipairs(found) do
    for at = 1, #heads do
      if values[at] then return false end
    end
  end
  return next_due
end

-- Puts completed jobs into their set. `pairs_at` is where pairs of position and value begin in ARGV.
local function keep_completed(completed, result, ids, time, pairs_at)
  local values = {}
  for at = pairs_at, #ARGV, 2 do
    values[#values + 1], values[#values + 2] = ids[tonumber(ARGV[at])], ARGV[at + 1]
  end
  if #values > 0 then redis.call('HSET', result, unpack(values)) end
  add_all(completed, time, ids)
end
