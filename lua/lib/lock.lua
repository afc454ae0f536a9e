-- The first fence of a call: after the last one, or the clock (us) if that is larger. Fences stay integers below 2^53,
-- which doubles hold exactly. So a clock after the year 2223 counts as 8e15, and a last fence without room for this
-- call as 0.
local function next_fence(last, now)
  last = tonumber(last) or 0
  if not (last >= 0 and last < 2 ^ 53 - 1000) then last = 0 end
  return math.max(math.floor(last) + 1, math.min(now, 8e15))
end

-- Locks the jobs for the worker, under ascending fences from the first one.
local function lock_jobs(locks, worker, fence, ids)
  if #ids == 1 then return redis.call('HSET', locks, ids[1], worker .. string.format(':%d', fence)) end
  local tokens, at, tens, digits = {}, 0, '', { '1', '2', '3', '4', '5', '6', '7', '8', '9', [0] = '0' }
  if #ids > 16 then
    -- Redis searches a small hash of short values linearly. A value over 64 bytes makes HSET begin with a hash table.
    tokens, at = { ids[1], string.rep('-', 65) }, 2
  end
  for index = 1, #ids do
    -- Formatting a number is slow, so only the last digit is added for each job.
    local own = fence + index - 1
    local digit = own % 10
    if index == 1 or digit == 0 then tens = worker .. string.format(':%d', (own - digit) / 10) end
    tokens[at + 1], tokens[at + 2] = ids[index], tens .. digits[digit]
    at = at + 2
  end
  redis.call('HSET', locks, unpack(tokens))
end

-- Writes the fences of the jobs after position `first`, up to `last`, into a hash. `fence` is that of position 1.
local function mark_jobs(key, ids, first, last, fence)
  -- One long value first, as in lock_jobs.
  local marks = last - first > 16 and { ids[last], string.rep('-', 65) } or {}
  for at = first + 1, last do
    marks[#marks + 1], marks[#marks + 2] = ids[at], string.format('%d', fence + at - 1)
  end
  if #marks > 0 then redis.call('HSET', key, unpack(marks)) end
end
