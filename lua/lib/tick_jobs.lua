-- Writes jobs of schedules as a dispatch does: with the priority of the task, without a delay, and with options (JSON).
-- `task` has fields of `meta`. Returns their ids.
local function write_tick_jobs(keys, jobs, task, now_ms)
  local ids, payloads, own, times, priorities, largest = {}, {}, {}, {}, {}, 0
  local lists = { high = keys.wait_high, normal = keys.wait, low = keys.wait_low }
  local wanted, now = string.match(task.priority or '', '^%l+'), string.format('%d', now_ms)
  wanted = lists[wanted] and wanted or 'normal'
  for at, job in ipairs(jobs) do
    local field = 2 * at - 1
    ids[at], largest = job.id, math.max(largest, #job.input)
    payloads[field], payloads[field + 1] = job.id, job.input
    own[field], own[field + 1] = job.id, job.options
    times[field], times[field + 1] = job.id, now
    priorities[field], priorities[field + 1] = job.id, wanted
  end
  -- A growing command first: a server at maxmemory refuses the call whole.
  redis.call('RPUSH', lists[wanted], unpack(ids))
  redis.call('HSET', keys.options, unpack(own))
  redis.call('HSET', keys.dispatched_at, unpack(times))
  if wanted ~= 'normal' then redis.call('HSET', keys.priority, unpack(priorities)) end
  redis.call('HSET', keys.payload, unpack(payloads))
  -- The partition of a schedule may not be that of the key.
  local pointer, lanes_of = not task.partitions and task.key or '', {}
  for _, job in ipairs(jobs) do
    local key = pointer ~= '' and key_at(job.input, pointer)
    if key then lanes_of[#lanes_of + 1], lanes_of[#lanes_of + 2] = job.id, key end
  end
  if #lanes_of > 0 then
    redis.call('HSET', keys.lane_of, unpack(lanes_of))
    redis.call('HSET', keys.meta, 'keyed', '1')
  end
  local news = { 'in', string.format('%d', (tonumber(task['in']) or 0) + #ids) }
  if largest > (tonumber(task.largest) or 0) then news[3], news[4] = 'largest', bound_of(largest) end
  redis.call('HSET', keys.meta, unpack(news))
  return ids
end

-- Writes a schedule whose ticks were accounted for.
local function write_row(keys, row, now)
  local name, ledger = row.name, row.ledger
  redis.call('HSET', keys.schedules_ledger, name, ledger_line(ledger))
  local recent = recent_ticks(redis.call('HGET', keys.schedules_ticks, name), row.words)
  redis.call('HSET', keys.schedules_ticks, name, recent)
  if row.has_new_zone then redis.call('HSET', keys.schedules_rule, name, rule_line(row.rule)) end
  if ledger.due then
    redis.call('ZADD', keys.schedules, string.format('%d', row.at), name)
  else
    redis.call('ZREM', keys.schedules, name)
  end
  if ledger.pending then
    redis.call('ZADD', keys.schedules_pending, now, name)
  else
    redis.call('ZREM', keys.schedules_pending, name)
  end
end
