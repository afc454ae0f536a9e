-- Counts the runs of these outcomes that completed, were snoozed and failed, and the jobs that began to fail.
local function tally(out)
  local failed, began = 0, 0
  for _, group in ipairs({ out.failed, out.retry, out.undecodable }) do
    failed = failed + #group
    for _, outcome in ipairs(group) do
      -- For an input that cannot be decoded, `attempt` is how often it was delayed.
      if outcome.attempt == '1' or string.find(outcome.attempt, ':1$') then began = began + 1 end
    end
  end
  return { completed = #out.completed, snoozed = #out.snooze, failed = failed, began = began }
end

-- The fields of `meta` that change as jobs end, from those before this call: how many ended, and what failed or broke
-- off since a run completed. A snooze counts like a completion: it shows that the handler works.
local function news_of_ends(ran, before, out, found, how)
  local news, missed, works = {}, #found.corrupt + #found.expired, ran.completed + ran.snoozed > 0
  local ends = #out.completed + #out.failed + #out.cancelled + out.ended + missed - (how.hook and #found.expired or 0)
  local function put_count(field, known, more, begins_again)
    known = tonumber(known) or 0
    local total = begins_again and 0 or known + more
    if total ~= known then news[#news + 1], news[#news + 2] = field, string.format('%d', total) end
  end
  local function put_time(field, count)
    if count > 0 then news[#news + 1], news[#news + 2] = field, string.format('%d', how.now_ms) end
  end
  put_count('out', before.out, ends)
  put_count('failedSinceCompleted', before.failedSinceCompleted, ran.began + missed, works)
  put_count('brokenOffSinceCompleted', before.brokenOffSinceCompleted, ran.broken_off, works)
  put_time('lastCompletedAt', ran.completed)
  put_time('lastFailedAt', ran.failed + missed)
  put_time('lastBrokenOffAt', ran.broken_off)
  return news
end
