-- How runs ended: `<row> <begun> <last> <done> <broken> <again> <off> <hour> <completed> <first> <completed> <first>|`,
-- then each of the last minutes as `<minute> <completed> <failed> <first>` with ';' between, the last one first.
-- `first` of those that failed were the first of their jobs to fail, and `row` is how many there were since a run
-- completed, or put its job off; the first of them at `begun`, the last failure at `last`, the last completion at
-- `done`, ms. `broken` is how many broke off since then, as their worker stopped or died, the last one at `off`, and
-- `again` how often the one of their jobs did that did most often. Those of this hour stand before those of the hour
-- before it, and what put its job off is among what completed there. Returns the text with those of this call: `off`
-- has how many broke off, and how often that job did by now.
local function count_runs(text, now_ms, completed, snoozed, failed, first, off)
  local row, begun, last, done, broken, again, off_at, hours, minutes = string.match(text,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d ]+)|(.*)$')
  row, now_ms, minutes = tonumber(row) or 0, math.floor(now_ms), minutes or ''
  broken, again = tonumber(broken) or 0, tonumber(again) or 0
  if off.broken > 0 then off_at = now_ms end
  if completed > 0 then done = now_ms end
  if completed + snoozed > 0 then
    row, broken, again = 0, 0, 0
  else
    if row == 0 and first > 0 then begun = now_ms end
    row, broken, again = row + first, broken + off.broken, off.again or again
  end
  if failed > 0 then last = now_ms end
  local hour = math.floor(now_ms / 3600000)
  local its, now_completed, now_first, then_completed, then_first = string.match(hours or '',
    '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if tonumber(its) ~= hour then
    local is_next = tonumber(its) == hour - 1
    then_completed, then_first = is_next and now_completed or 0, is_next and now_first or 0
    now_completed, now_first = 0, 0
  end
  now_completed, now_first = now_completed + completed + snoozed, now_first + first
  local minute = math.floor(now_ms / 60000)
  local at, had_completed, had_failed, had_first, rest = string.match(minutes, '^(%d+) (%d+) (%d+) (%d+)(.*)$')
  if tonumber(at) == minute then
    completed, failed, first = completed + had_completed, failed + had_failed, first + had_first
  else
    -- Of those before only such as are counted yet.
    rest = ''
    for entry, of in string.gmatch(minutes, '((%d+) %d+ %d+ %d+)') do
      if tonumber(of) < minute and tonumber(of) > minute - 6 then rest = rest .. ';' .. entry end
    end
  end
  return string.format('%d %d %d %d %d %d %d %d %d %d %d %d|%d %d %d %d', row, tonumber(begun) or 0,
    tonumber(last) or 0, tonumber(done) or 0, broken, again, tonumber(off_at) or 0, hour, now_completed, now_first,
    then_completed, then_first, minute, completed, failed, first) .. rest
end

-- How many jobs are remembered that began anew.
local REMEMBERED = 16

-- What there is to count of runs that broke off, of these jobs. `jobs` names those that did before, `<id> <times>` each
-- with spaces between, the most frequent first; `text` is how runs ended, and where none broke off since one completed
-- they are forgotten, as are those that have ended.
local function broken_off(places, ids, text, jobs)
  if #ids == 0 then return { broken = 0 } end
  local times, order, goes_on = {}, {}, string.match(text, '^%d+ %d+ %d+ %d+ [1-9]')
  for id, count in string.gmatch(goes_on and jobs or '', '(%S+) (%d+)') do times[id] = tonumber(count) end
  local rest = {}
  for id in pairs(times) do rest[id] = true end
  for _, id in ipairs(ids) do times[id], rest[id] = (times[id] or 0) + 1, nil end
  for id in pairs(rest) do
    local has_ended = redis.call('HEXISTS', places.payload, id) == 0 or redis.call('ZSCORE', places.failed, id)
      or redis.call('ZSCORE', places.cancelled, id)
    if has_ended then times[id] = nil end
  end
  for id in pairs(times) do order[#order + 1] = id end
  table.sort(order, function(one, other)
    if times[one] ~= times[other] then return times[one] > times[other] end
    return one < other
  end)
  local words = {}
  for place = 1, math.min(#order, REMEMBERED) do words[place] = order[place] .. ' ' .. times[order[place]] end
  return { broken = #ids, again = times[order[1]], jobs = table.concat(words, ' ') }
end

-- The same of runs that failed or broke off without the word of a worker: it died with them, or nobody began them in
-- time. By pcall: a count that cannot be written undoes nothing.
local function count_failed(places, now_ms, failed, first, broken)
  if failed + #broken == 0 then return end
  local text, jobs = unpack(redis.pcall('HMGET', places.meta, 'runs', 'brokenJobs'))
  text = text or ''
  local off = broken_off(places, broken, text, jobs)
  local news = { 'runs', count_runs(text, now_ms, 0, 0, failed, first, off) }
  if off.jobs then news[3], news[4] = 'brokenJobs', off.jobs end
  redis.pcall('HSET', places.meta, unpack(news))
end

-- The text when somebody has seen what failed: that is counted anew.
local function forgive(text)
  local done, rest, hour, completed, before, minutes = string.match(text,
    '^%d+ %d+ %d+ (%d+) (%d+ %d+ %d+) (%d+) (%d+) %d+ (%d+) %d+|(.*)$')
  if not done then return '' end
  minutes = string.gsub(minutes, '(%d+ %d+ %d+) %d+', '%1 0')
  return string.format('0 0 0 %s %s %s %s 0 %s 0|%s', done, rest, hour, completed, before, minutes)
end

-- The fields of `meta` that tell how many jobs ended, and how runs did. `off` has how many broke off.
local function news_of_ends(ended, runs, now_ms, out, found, how, off)
  local news, first, missed = {}, 0, #found.corrupt + #found.expired
  local ends = #out.completed + #out.failed + #out.cancelled + out.ended + #found.corrupt
    + (how.hook and 0 or #found.expired)
  if ends > 0 then news[1], news[2] = 'out', (tonumber(ended) or 0) + ends end
  local failed = #out.failed + #out.retry + #out.undecodable
  for _, group in ipairs(failed > 0 and { out.failed, out.retry, out.undecodable } or {}) do
    for _, outcome in ipairs(group) do
      -- Of an input that cannot be read the attempt is how often it was put off.
      if outcome.attempt == '1' or string.find(outcome.attempt, ':1$') then first = first + 1 end
    end
  end
  if #out.completed + #out.snooze + failed + missed + off.broken > 0 then
    news[#news + 1] = 'runs'
    news[#news + 1] = count_runs(runs or '', now_ms, #out.completed, #out.snooze, failed + missed, first + missed, off)
    if off.jobs then news[#news + 1], news[#news + 2] = 'brokenJobs', off.jobs end
  end
  return news
end

-- Whether any of some 200 jobs had failed before, of those that are due next, wait last, or are held.
local function any_tried_again(later, waiting, held, attempts)
  local some, by_turns = redis.call('ZRANGE', later, 0, 199), redis.call('HSCAN', held, 0, 'COUNT', 200)[2]
  for _, list in ipairs(waiting) do
    for _, id in ipairs(redis.call('LRANGE', list, -200, -1)) do some[#some + 1] = id end
  end
  -- Of a small hash all of it comes.
  for at = 1, math.min(#by_turns, 1000), 2 do some[#some + 1] = by_turns[at] end
  for _, failed_runs in ipairs(#some > 0 and redis.call('HMGET', attempts, unpack(some)) or {}) do
    if failed_runs and failed_runs ~= '0' then return true end
  end
  return false
end
