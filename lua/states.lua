-- Reads the states of jobs, and the sizes of the values of completed ones. Reads no value, changes nothing.
-- Uses     states
-- KEYS[1]  payload    (hash)  column
-- KEYS[2]  locks      (hash)  id -> token
-- KEYS[3]  delayed    (zset)  ids by due time, ms
-- KEYS[4]  completed  (zset)  ids by finish time, ms
-- KEYS[5]  failed     (zset)  ids by finish time, ms
-- KEYS[6]  cancelled  (zset)  ids by finish time, ms
-- KEYS[7]  result     (hash)  column
-- KEYS[8]  meta       (hash)  event mode
-- KEYS[9]  claimed    (hash)  id -> fence of a held job that has not begun
-- KEYS[10] outcome    (hash)  column
-- KEYS[11] finalizing (zset)  ids whose hook has to run, by due time, ms
-- ARGV[1]  ids        (of the jobs, at most 500)
-- Returns  {'looked', event mode ('' until a worker has declared it), states, bytes of the results}: one of each per
--          job; the state of an id without a job is 'unknown', the size of a missing value is 0
-- Emits    nothing
-- Refuses  WRONGTYPE
local places = { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed,
  finalizing = finalizing, outcome = outcome, claimed = claimed }
local states = states_of(payload, locks, places, ARGV)
local bytes = {}
for at, id in ipairs(ARGV) do bytes[at] = states[at] == 'completed' and redis.call('HSTRLEN', result, id) or 0 end
return { 'looked', redis.call('HGET', meta, 'eventMode') or '', states, bytes }
