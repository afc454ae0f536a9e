-- A job of a task with a hook ends in two steps: its outcome is stored, and when the hook has run it becomes terminal.
-- In between it is finalizing. `outcome` has the kind, how often the hook failed and stalled, and the run time of the
-- handler. While no worker holds the job, `finalizing` has the time from which the hook may run.

-- Parses a stored outcome. An unknown kind, written by hand, counts as a failure.
local function outcome_of(text)
  local kind, failed, stalls, ran = string.match(text, '^(%l+) (%d+) (%d+) (%S+)$')
  if kind ~= 'completed' and kind ~= 'cancelled' then kind = 'failed' end
  return kind, tonumber(failed) or 0, tonumber(stalls) or 0, ran or '-'
end

-- Writes how often hooks failed and stalled, {id, text ..}, and from when on they may run, {ms, id ..}.
local function await_hooks(places, outcomes, due)
  if #outcomes > 0 then redis.call('HSET', places.outcome, unpack(outcomes)) end
  local finalizing = places.finalizing
  if #due > 0 then redis.call('ZADD', finalizing, unpack(due)) end
end

-- Counts hooks that failed for good, in total and in the current series, which ends after 15 minutes without a failure.
local function count_failed_hooks(meta, count, now_ms)
  if count == 0 then return end
  local now, last = string.format('%d', now_ms), tonumber(redis.call('HGET', meta, 'hookFailedAt') or nil)
  if not last or now_ms - last > 900000 then
    redis.call('HSET', meta, 'hooksFailingSince', now, 'hooksFailedRow', '0')
  end
  redis.pcall('HINCRBY', meta, 'hooksFailed', count)
  redis.pcall('HINCRBY', meta, 'hooksFailedRow', count)
  redis.call('HSET', meta, 'hookFailedAt', now)
end

-- Makes jobs terminal, with their stored outcomes: their hook has run, or will not run again.
local function end_finalized(places, how, ids, fields)
  if #ids == 0 then return end
  local texts = redis.call('HMGET', places.outcome, unpack(ids))
  local groups, words, times = { completed = {}, failed = {}, cancelled = {} }, {}, {}
  for at, id in ipairs(ids) do
    local kind, _, _, ran = outcome_of(texts[at] or '')
    local group = groups[kind] or groups.failed
    group[#group + 1] = id
    if kind == 'completed' then
      times[#times + 1] = ran == '-' and '0' or ran
    elseif group == groups.failed then
      local failure = object_of(redis.call('HGET', places.errors, id) or nil)
      local code = string.match(tostring(failure.code or ''), '^[a-z0-9_]+$') or 'corrupt'
      local brief = brief_of(tostring(failure.message or ''))
      words[#words + 1] = table.concat({ id, code, brief == '' and '-' or brief, ran }, ' ')
    end
  end
  redis.call('HDEL', places.outcome, unpack(ids))
  redis.call('ZREM', places.finalizing, unpack(ids))
  local final = { keep = how.keep, now_ms = how.now_ms }
  for kind, group in pairs(groups) do
    if #group > 0 then finish(places, final, kind, group, {}) end
  end
  add_words(fields, 'ran', times)
  add_words(fields, 'completed', groups.completed)
  add_words(fields, 'failed', words)
  add_words(fields, 'cancelled', groups.cancelled)
end
