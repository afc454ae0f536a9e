-- Returns the numbers of jobs that are waiting, delayed, claimed, running, finalizing, completed, failed and cancelled.
local function count_jobs(lists, lanes, delayed, claimed, locks, hooks, terminal_places, meta)
  local waiting = redis.call('ZCARD', lanes) - (tonumber(redis.call('HGET', meta, 'tombstones')) or 0)
  for _, list in ipairs(lists) do waiting = waiting + redis.call('LLEN', list) end
  local held = redis.call('HLEN', locks)
  local ahead = math.min(held, redis.call('HLEN', claimed))
  -- A finalizing job that is not in `finalizing` is held by a worker, which runs its hook.
  local finalizing = redis.call('HLEN', hooks.outcome)
  local hooked = math.max(0, finalizing - redis.call('ZCARD', hooks.finalizing))
  local counts = { math.max(0, waiting), redis.call('ZCARD', delayed), ahead, math.max(0, held - ahead - hooked),
    finalizing }
  for _, place in ipairs(terminal_places) do counts[#counts + 1] = redis.call('ZCARD', place) end
  return counts
end
