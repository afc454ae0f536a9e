-- How runs ended: `<row> <begun> <last> <done> <broken> <held> <off> <hour> <completed> <first> <completed> <first>|`,
-- then each of the last minutes as `<minute> <completed> <failed> <first>` with ';' between, the last one first.
-- `first` of those that failed were the first of their jobs to fail, and `row` is how many there were since a run
-- completed, or put its job off; the first of them at `begun`, the last failure at `last`, the last completion at
-- `done`, ms. `broken` is how many broke off since then, as their worker stopped or died, the last one at `off`, and
-- `held` how many jobs were held at a time when any did. Those of this hour stand before those of the hour before it,
-- and what put its job off is among what completed there. Returns the text with those of this call: `off` has how many
-- broke off, and how many were held.
local function count_runs(text, now_ms, completed, snoozed, failed, first, off)
  local row, begun, last, done, broken, held, off_at, hours, minutes = string.match(text,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d ]+)|(.*)$')
  row, now_ms, minutes = tonumber(row) or 0, math.floor(now_ms), minutes or ''
  broken, held = tonumber(broken) or 0, tonumber(held) or 0
  if off.broken > 0 then off_at = now_ms end
  if completed > 0 then done = now_ms end
  if completed + snoozed > 0 then
    row, broken, held = 0, 0, 0
  else
    if row == 0 and first > 0 then begun = now_ms end
    row, broken, held = row + first, broken + off.broken, math.max(held, off.held)
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
    tonumber(last) or 0, tonumber(done) or 0, broken, held, tonumber(off_at) or 0, hour, now_completed, now_first,
    then_completed, then_first, minute, completed, failed, first) .. rest
end

-- The same of runs that failed or broke off without the word of a worker: it died with them, or nobody began them in
-- time. By pcall: a count that cannot be written undoes nothing.
local function count_failed(meta, now_ms, failed, first, off)
  if failed + off.broken == 0 then return end
  local text = redis.pcall('HGET', meta, 'runs')
  redis.pcall('HSET', meta, 'runs', count_runs(type(text) == 'string' and text or '', now_ms, 0, 0, failed, first, off))
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
  end
  return news
end
