-- How many jobs wait, are delayed, running, completed, failed and cancelled.
local function count_jobs(lists, delayed, locks, terminal_places, meta)
  local waiting = -(tonumber(redis.call('HGET', meta, 'ghosts')) or 0)
  for _, list in ipairs(lists) do waiting = waiting + redis.call('LLEN', list) end
  local counts = { math.max(0, waiting), redis.call('ZCARD', delayed), redis.call('HLEN', locks) }
  for _, place in ipairs(terminal_places) do counts[#counts + 1] = redis.call('ZCARD', place) end
  return counts
end
