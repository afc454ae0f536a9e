-- Reads one job: where it is, and its small columns. Changes nothing.
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  attempt       (hash)    column
-- KEYS[8]  stalledCount  (hash)    column
-- KEYS[9]  error         (hash)    column
-- KEYS[10] deferred      (hash)    column
-- ARGV[1]  id            (of the job)
-- Returns  {'found', state, attempt, stalledCount, error, deferred}, a column that is not set is ''; or {'unknown'}
-- Emits    nothing
-- Refuses  WRONGTYPE
local places = { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed }
local state = states_of(payload, locks, places, ARGV)[1]
if state == 'unknown' then return { 'unknown' } end
local values = {}
for index, column in ipairs({ attempt, stalled_count, errors, deferred }) do
  values[index] = redis.call('HGET', column, ARGV[1]) or ''
end
return { 'found', state, unpack(values) }
