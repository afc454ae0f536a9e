-- The field `full` of `meta` says that no job of the task may be claimed: 'running' while max_running jobs run; or two
-- words, until when and for how long at most, ms, because of a rate. A third word, 'handler', follows if a handler
-- was rate limited: other limits do not end that.

-- Until when the task rests, and for how long at most, ms; nil if it does not rest. The clock may have gone back, so a
-- rest is never longer than it was meant to be.
local function rest_of(full, now_ms)
  local over, length = string.match(full or '', '^(%d+) (%d+)')
  over, length = tonumber(over), tonumber(length)
  if not over or over <= now_ms then return nil end
  return math.min(over, now_ms + length), length
end
