-- The jobs that an act names (ARGV from `at`: pairs id, stamp) and where they stand. A stamp that is not '' must be
-- the one that the job still has, '-' of one that waits, or '=' and its state, and behind that '@' and when it was
-- dispatched, if another one may have its id by now: the state of others is 'changed'. Of an id that was made for the
-- job that time is not kept, and no other one gets it.
-- Returns the ids and the states; the states are what the caller is told, but for those that it acts upon.
local function named_jobs(at, payload, locks, places, dispatched_at)
  local ids, expected, dispatched, has_any = {}, {}, {}, false
  for index = at, #ARGV, 2 do
    local state, ms = string.match(ARGV[index + 1], '^(=%a+)@(%d+)$')
    ids[#ids + 1], expected[#expected + 1] = ARGV[index], state or ARGV[index + 1]
    dispatched[#ids], has_any = ms or false, has_any or ms
  end
  if #ids == 0 then return {}, {} end
  local states, stamps = states_of(payload, locks, places, ids)
  local times = has_any and redis.call('HMGET', dispatched_at, unpack(ids)) or {}
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
