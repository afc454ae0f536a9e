-- How runs ended in each of the last minutes: `<minute> <completed> <failed> <first>` with ';' between, the last minute
-- first. `first` of those that failed were the first of their jobs to fail. Returns the text with those of this call.
local function count_runs(text, now_ms, out)
  local completed, failed, first = #out.completed, #out.failed + #out.retry, 0
  for _, group in ipairs(failed > 0 and { out.failed, out.retry } or {}) do
    for _, outcome in ipairs(group) do
      if outcome.attempt == '1' then first = first + 1 end
    end
  end
  local minute = math.floor(now_ms / 60000)
  local at, had_completed, had_failed, had_first, rest = string.match(text, '^(%d+) (%d+) (%d+) (%d+)(.*)$')
  if tonumber(at) == minute then
    completed, failed, first = completed + had_completed, failed + had_failed, first + had_first
  else
    -- Of those before only such as are counted yet.
    rest = ''
    for entry, its in string.gmatch(text, '((%d+) %d+ %d+ %d+)') do
      if tonumber(its) < minute and tonumber(its) > minute - 6 then rest = rest .. ';' .. entry end
    end
  end
  return string.format('%d %d %d %d', minute, completed, failed, first) .. rest
end

-- The fields of `meta` that tell how many jobs ended, and how runs did.
local function news_of_ends(ended, runs, now_ms, out, found, how)
  local news = {}
  local ends = #out.completed + #out.failed + #out.cancelled + out.ended + #found.corrupt
    + (how.hook and 0 or #found.expired)
  if ends > 0 then news[1], news[2] = 'out', (tonumber(ended) or 0) + ends end
  if #out.completed + #out.failed + #out.retry > 0 then
    news[#news + 1], news[#news + 2] = 'runs', count_runs(runs or '', now_ms, out)
  end
  return news
end
