-- Removes a schedule. Its ledger and its pause are kept for 30 days, in case it returns.
local function remove_schedule(keys, name, now_ms)
  local ledger = ledger_of(redis.call('HGET', keys.schedules_ledger, name))
  redis.call('HDEL', keys.schedules_rule, name)
  redis.call('HDEL', keys.schedules_input, name)
  redis.call('HDEL', keys.schedules_differ, name)
  for _, place in ipairs({ keys.schedules, keys.schedules_pending, keys.schedules_named }) do
    redis.call('ZREM', place, name)
  end
  if ledger then
    if ledger.pending then
      ledger.overlapped = ledger.overlapped + 1
      redis.pcall('HINCRBY', keys.meta, 'ticksOverlapped', 1)
    end
    ledger.due, ledger.pending, ledger.before = false, false, false
    redis.call('HSET', keys.schedules_ledger, name, ledger_line(ledger))
  end
  redis.call('ZADD', keys.schedules_gone, string.format('%d', now_ms), name)
end

-- Forgets up to 50 of those that were removed more than 30 days ago.
local function forget_gone(keys, now_ms)
  local before = '(' .. string.format('%d', now_ms - KEPT_MS)
  for _, name in ipairs(redis.call('ZRANGE', keys.schedules_gone, '-inf', before, 'BYSCORE', 'LIMIT', 0, 50)) do
    for _, column in ipairs({ keys.schedules_ledger, keys.schedules_paused, keys.schedules_ticks }) do
      redis.call('HDEL', column, name)
    end
    redis.call('ZREM', keys.schedules_gone, name)
  end
end
