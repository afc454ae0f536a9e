-- Reads the jobs that an action names (ARGV from `at`: pairs id, stamp) and their states. A stamp is '' (any), the
-- stamp that the job must still have, '-' for a waiting job, or '=' and its state. After a state, '@' and the dispatch
-- time exclude another job with the same id. A generated id has no such time, since it is never used again. A job with
-- another stamp gets the state 'changed'. Returns the ids, and the states to report for jobs that stay as they are.
local function named_jobs(at, keys)
  local ids, expected, dispatched, has_any = {}, {}, {}, false
  for index = at, #ARGV, 2 do
    local state, ms = string.match(ARGV[index + 1], '^(=%a+)@(%d+)$')
    ids[#ids + 1], expected[#expected + 1] = ARGV[index], state or ARGV[index + 1]
    dispatched[#ids], has_any = ms or false, has_any or ms
  end
  if #ids == 0 then return {}, {} end
  local states, stamps = states_of(keys.payload, keys.locks, keys, ids)
  local times = has_any and redis.call('HMGET', keys.dispatched_at, unpack(ids)) or {}
  local seen = {}
  for index = 1, #ids do
    local stamp = states[index] == 'waiting' and '-' or stamps[index]
    local is_other = expected[index] ~= '' and expected[index] ~= stamp and expected[index] ~= '=' .. states[index]
      or dispatched[index] and times[index] and dispatched[index] ~= times[index]
    if (is_other or seen[ids[index]]) and states[index] ~= 'unknown' then states[index] = 'changed' end
    seen[ids[index]] = true
  end
  return ids, states
end
