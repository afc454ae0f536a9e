-- Counts in `meta`, for people: runs that failed or broke off without a report of their worker, and jobs that began to
-- fail since a run completed. By pcall: a count that cannot be written must not undo anything.
local function count_failing(meta, now_ms, failed, began, broken)
  local now = string.format('%d', now_ms)
  if failed > 0 then redis.pcall('HSET', meta, 'lastFailedAt', now) end
  if began > 0 then redis.pcall('HINCRBY', meta, 'failedSinceCompleted', began) end
  if broken == 0 then return end
  redis.pcall('HINCRBY', meta, 'brokenOffSinceCompleted', broken)
  redis.pcall('HSET', meta, 'lastBrokenOffAt', now)
end
