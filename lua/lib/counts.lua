-- How many jobs wait, are delayed, claimed, running, completed, failed and cancelled.
local function count_jobs(lists, delayed, claimed, locks, terminal_places, meta)
  local waiting = -(tonumber(redis.call('HGET', meta, 'ghosts')) or 0)
  for _, list in ipairs(lists) do waiting = waiting + redis.call('LLEN', list) end
  local held = redis.call('HLEN', locks)
  local ahead = math.min(held, redis.call('HLEN', claimed))
  local counts = { math.max(0, waiting), redis.call('ZCARD', delayed), ahead, held - ahead }
  for _, place in ipairs(terminal_places) do counts[#counts + 1] = redis.call('ZCARD', place) end
  return counts
end
