-- Some of the candidates: at most `limit`, each once, from the cursor on. A small set is answered whole by SSCAN,
-- whatever its COUNT; what is past the limit then waits for the next round from 0. Of a set that was large a moment ago
-- a few that are left are looked for in steps of one: while the server shrinks its table one step visits thousands of
-- buckets, and COUNT is how many steps it takes before it looks at what it has found.
local function next_candidates(candidates, cursor, limit, running)
  local step = redis.call('SCARD', candidates) * 1000 < running and 1 or limit
  local scanned = nil
  for _ = step, limit, step do
    scanned = redis.call('SSCAN', candidates, cursor, 'COUNT', step)
    cursor = scanned[1]
    if #scanned[2] > 0 or cursor == '0' then break end
  end
  local ids, seen = {}, {}
  for _, id in ipairs(scanned[2]) do
    if not seen[id] and #ids < limit then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
  return { ids = ids, cursor = cursor }
end

-- Decides about each candidate by the table in sweep.lua, without writing. `words` are those of the event, four a job:
-- id, count, action, the worker that held it ('-' when nobody did).
local function decide(ids, locks, cancelling, payload, stalled_count, max_count, terminal_places, default_max)
  local found = { dropped = {}, failed = {}, errors = {}, cancelled = {}, reasons = {}, recovered = {}, counted = {},
    words = {} }
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
  for i, id in ipairs(ids) do
    local holder = tokens[i] and string.match(tokens[i], '^(.*):%d+$') or '-'
    local count, action = count_of(counts[i]), nil
    if redis.call('HEXISTS', payload, id) == 0 then
      action = 'dropped'
      add(found.dropped, nil, id)
    elseif not tokens[i] then
      if not terminal[i] then
        action = 'failed'
        add(found.failed, found.errors, id, error_json('corrupt', 'the job was running but nobody held its lock'))
      end
    elseif not count then
      action = 'failed'
      add(found.failed, found.errors, id, error_json('corrupt', 'stalledCount is no number'))
    else
      found.counted[#found.counted + 1] = id
      count = count + 1
      local max = own[i] and count_of(own[i]) or default_max
      if reasons[i] then
        action = 'cancelled'
        add(found.cancelled, found.reasons, id, error_json('cancelled', reasons[i]))
      elseif count > max then
        action = 'failed'
        add(found.failed, found.errors, id, error_json('worker_crashed', string.format(
          'the worker %s fell silent while it ran the job: stall %d of at most %d', holder, count, max)))
      else
        action = 'recovered'
        add(found.recovered, nil, id)
      end
    end
    if action then
      local at = #found.words
      found.words[at + 1], found.words[at + 2] = id, string.format('%d', count or 0)
      found.words[at + 3], found.words[at + 4] = action, holder
    end
  end
  return found
end
