-- Returns the optional columns and the terminal sets that are not empty, whether every other optional key is empty, and
-- whether `early` is not. Most are empty most of the time, so one EXISTS asks for all of them first.
local function look_around(keys)
  local rare = redis.call('EXISTS', keys.candidates, keys.cancelling, keys.lists[1], keys.lists[3], keys.delayed,
    keys.completed, keys.failed, keys.cancelled, keys.attempt, keys.stalled_count, keys.options, keys.dispatched_at,
    keys.result, keys.errors, keys.max_count, keys.priority, keys.snoozes, keys.enqueued_at, keys.recovery,
    keys.expires_at, keys.checkpoint, keys.progress, keys.outcome, keys.tombstones, keys.early)
  if rare == 0 then return {}, {}, true, false end
  local ended = filled('ZCARD', keys.completed, keys.failed, keys.cancelled)
  if rare == #ended then return {}, ended, true, false end
  local columns = filled('HLEN', keys.result, keys.errors, keys.max_count, keys.priority, keys.enqueued_at,
    keys.attempt, keys.stalled_count, keys.options, keys.dispatched_at, keys.snoozes, keys.recovery, keys.expires_at,
    keys.checkpoint, keys.progress, keys.outcome)
  rare = rare - #ended - #columns
  local has_early = rare > 0 and redis.call('HLEN', keys.early) > 0
  return columns, ended, rare == (has_early and 1 or 0), has_early
end
