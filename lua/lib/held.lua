-- Compares the fences that a worker shows with `locks`. Returns the positions of the jobs that it holds, and the fences
-- of those that it lost. Nothing may be written for a lost job.
local function held_by(locks, worker, ids, fences)
  local held, lost = {}, {}
  if #ids == 0 then return held, lost end
  local tokens, prefix = redis.call('HMGET', locks, unpack(ids)), worker .. ':'
  local count = 0
  for index = 1, #ids do
    if tokens[index] == prefix .. fences[index] then
      count = count + 1
      held[count] = index
    else
      lost[#lost + 1] = fences[index]
    end
  end
  return held, lost
end

-- The reasons of pending cancels, by position.
local function cancel_reasons(cancelling, ids)
  if #ids == 0 or redis.call('HLEN', cancelling) == 0 then return {} end
  return redis.call('HMGET', cancelling, unpack(ids))
end
