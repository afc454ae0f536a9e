-- Reads what a worker reports and sorts it, without writing. ARGV from `at`: n ids, n fences of completed jobs, r pairs
-- (position, value), then six words for each other outcome. `ran` has a word for each completed job. A cancel that was
-- asked for goes before every outcome; without `cancelling` none was.
local function read_outcomes(at, n, r, ran, locks, cancelling, worker)
  local out = { all = {}, lost = {}, completed = {}, results = {}, failed = {}, retry = {}, requeue = {},
    snooze = {}, undecodable = {}, ran = ran, cancelled = {}, reasons = {}, cancelled_fences = {} }
  local ids, fences, others = { unpack(ARGV, at, at + n - 1) }, { unpack(ARGV, at + n, at + 2 * n - 1) }, {}
  for i = at + 2 * n + 2 * r, #ARGV, 6 do
    local place = #ids + 1
    ids[place], fences[place], others[place] = ARGV[i], ARGV[i + 1], i
  end
  local held, lost = held_by(locks, worker, ids, fences)
  local reasons = cancelling and cancel_reasons(cancelling, ids) or {}
  out.lost = lost
  local values = {}
  for i = at + 2 * n, at + 2 * n + 2 * r - 1, 2 do values[tonumber(ARGV[i])] = ARGV[i + 1] end
  for k, i in ipairs(held) do
    local id = ids[i]
    out.all[k] = id
    if reasons[i] then
      out.cancelled[#out.cancelled + 1] = id
      out.reasons[#out.reasons + 1] = reasons[i]
      out.cancelled_fences[#out.cancelled_fences + 1] = fences[i]
    elseif i <= n then
      out.completed[#out.completed + 1] = id
      if values[i] then
        out.results[#out.results + 1] = id
        out.results[#out.results + 1] = values[i]
      end
    else
      local o = others[i]
      local group = out[ARGV[o + 2]]
      group[#group + 1] = { id = id, attempt = ARGV[o + 3], detail = ARGV[o + 4], error = ARGV[o + 5] }
    end
  end
  if #out.completed < n then
    -- Those that were lost or cancelled are left out.
    local all, own = {}, {}
    for word in string.gmatch(ran, '%S+') do all[#all + 1] = word end
    for _, i in ipairs(held) do
      if i <= n and not reasons[i] then own[#own + 1] = all[i] end
    end
    out.ran = table.concat(own, ' ')
  end
  return out
end

-- The ids of a group of outcomes, the fields of its attempt and error columns, and the words of its event.
local function ids_of(group)
  local ids, attempts, values, words = {}, {}, {}, {}
  for i, o in ipairs(group) do
    ids[i] = o.id
    attempts[2 * i - 1], attempts[2 * i] = o.id, o.attempt
    values[2 * i - 1], values[2 * i] = o.id, o.error
    words[i] = o.id .. ' ' .. o.detail
  end
  return ids, attempts, values, words
end

-- Puts the jobs off by their delays, with the value of a column for each, and adds the words of the event: id, value,
-- delay, and what else stands behind the delay.
local function put_off(group, column, delayed, now_ms, fields, name)
  local entries, words = {}, {}
  local _, values = ids_of(group)
  redis.call('HSET', column, unpack(values))
  for _, o in ipairs(group) do
    entries[#entries + 1] = string.format('%d', now_ms + string.match(o.detail, '^%d+'))
    entries[#entries + 1] = o.id
    words[#words + 1] = o.id .. ' ' .. o.attempt .. ' ' .. o.detail
  end
  redis.call('ZADD', delayed, unpack(entries))
  add_words(fields, name, words)
end

-- Writes the outcomes, group by group, and the words of their events. The jobs are out of the running sets already.
local function record_outcomes(out, places, stores, columns, keep, now_ms, fields)
  if #out.completed > 0 then
    finish(places.completed, keep.completed, now_ms, columns, out.completed, stores.result, out.results)
    if out.ran ~= '' then add_words(fields, 'ran', { out.ran }) end
    add_words(fields, 'completed', out.completed)
  end
  if #out.failed > 0 then
    local ids, attempts, values, words = ids_of(out.failed)
    if keep.failed ~= '0' then redis.call('HSET', stores.attempt, unpack(attempts)) end
    finish(places.failed, keep.failed, now_ms, columns, ids, stores.errors, values)
    add_words(fields, 'failed', words)
  end
  if #out.retry > 0 then
    local _, _, values = ids_of(out.retry)
    redis.call('HSET', stores.errors, unpack(values))
    put_off(out.retry, stores.attempt, places.delayed, now_ms, fields, 'retrying')
  end
  if #out.snooze > 0 then put_off(out.snooze, stores.deferred, places.delayed, now_ms, fields, 'snoozed') end
  if #out.undecodable > 0 then
    local _, _, values = ids_of(out.undecodable)
    redis.call('HSET', stores.errors, unpack(values))
    put_off(out.undecodable, stores.deferred, places.delayed, now_ms, fields, 'undecodable')
  end
  if #out.requeue > 0 then
    local ids = ids_of(out.requeue)
    back_to_wait('LPUSH', places.lists, stores.priority, ids)
    add_words(fields, 'requeued', ids)
  end
  if #out.cancelled > 0 then
    local values = {}
    for i, id in ipairs(out.cancelled) do
      values[2 * i - 1], values[2 * i] = id, error_json('cancelled', out.reasons[i])
    end
    finish(places.cancelled, keep.cancelled, now_ms, columns, out.cancelled, stores.errors, values)
    add_words(fields, 'cancelled', out.cancelled)
  end
end
