-- Some of the candidates: at most `limit`, each once, from the cursor on. A small set is answered whole by SSCAN,
-- whatever its COUNT; what is past the limit then waits for the next round from 0. Where some are named it is those
-- of them.
local function next_candidates(candidates, cursor, limit, named)
  if #named > 0 then
    local found, ids, taken = redis.call('SMISMEMBER', candidates, unpack(named)), {}, {}
    for at, id in ipairs(named) do
      if found[at] == 1 and not taken[id] then ids[#ids + 1], taken[id] = id, true end
    end
    return { ids = ids, cursor = cursor }
  end
  local scanned = redis.call('SSCAN', candidates, cursor, 'COUNT', limit)
  local ids, seen = {}, {}
  for _, id in ipairs(scanned[2]) do
    if not seen[id] and #ids < limit then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
  return { ids = ids, cursor = scanned[1] }
end

-- Decides about each candidate by the table in sweep.lua, without writing. `words` are those of the event, four a
-- job: id, count, action, the worker that held it ('-' when nobody did); `resolved` has them with the fence ('0').
local function decide(ids, locks, cancelling, payload, stalled_count, max_count, terminal_places, default_max, person)
  local found = { dropped = {}, failed = {}, errors = {}, cancelled = {}, reasons = {}, recovered = {}, counted = {},
    words = {}, resolved = {}, failed_words = {} }
  if #ids == 0 then return found end
  local tokens, reasons = redis.call('HMGET', locks, unpack(ids)), redis.call('HMGET', cancelling, unpack(ids))
  local counts, own = redis.call('HMGET', stalled_count, unpack(ids)), redis.call('HMGET', max_count, unpack(ids))
  local terminal = terminal_of(terminal_places, ids)
  local function add(group, values, id, value)
    group[#group + 1] = id
    if values then
      values[#values + 1] = id
      values[#values + 1] = value
    end
  end
  local function fail(id, code, message)
    add(found.failed, found.errors, id, error_json(code, message))
    found.failed_words[#found.failed_words + 1] = id .. ' ' .. code .. ' ' .. brief_of(message) .. ' -'
    return 'failed'
  end
  for index, id in ipairs(ids) do
    local holder, fence = string.match(tokens[index] or '', '^(.*):(%d+)$')
    holder = holder or '-'
    local count, action = count_of(counts[index]), nil
    if redis.call('HEXISTS', payload, id) == 0 then
      action = 'dropped'
      add(found.dropped, nil, id)
    elseif not tokens[index] then
      if not terminal[index] then action = fail(id, 'corrupt', 'the job was running but nobody held its lock') end
    elseif not count then
      action = fail(id, 'corrupt', 'stalledCount is no number')
    else
      found.counted[#found.counted + 1] = id
      count = count + 1
      local max = tonumber(string.match(own[index] or '', '^%d+$')) or default_max
      if reasons[index] then
        action = 'cancelled'
        add(found.cancelled, found.reasons, id, error_json('cancelled', reasons[index]))
      elseif person.verdict == 'fail' then
        action = fail(id, 'worker_crashed', string.format(
          'no beat came from worker %s for a watched interval, and %s let the job fail', holder, person.by))
      elseif count > max and person.verdict == 'auto' then
        action = fail(id, 'worker_crashed', string.format(
          'no beat came from worker %s for a watched interval: stalled %d times, max_count is %d', holder, count, max))
      else
        action = 'recovered'
        add(found.recovered, nil, id)
      end
    end
    if action then
      local at = #found.words
      found.words[at + 1], found.words[at + 2] = id, string.format('%d', count or 0)
      found.words[at + 3], found.words[at + 4] = action, holder
      for _, word in ipairs({ id, found.words[at + 2], action, holder, fence or '0' }) do
        found.resolved[#found.resolved + 1] = word
      end
    end
  end
  return found
end
