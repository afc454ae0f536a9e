-- Reads one job: where it is, and its columns. Changes nothing.
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  attempt       (hash)    column
-- KEYS[8]  stalledCount  (hash)    column
-- KEYS[9]  result        (hash)    column
-- KEYS[10] error         (hash)    column
-- ARGV[1]  id            (of the job)
-- Returns  {'found', state, attempt, stalledCount, result, error}, a column that is not set is ''; or {'unknown'}
-- Emits    nothing
-- Refuses  WRONGTYPE
local payload, locks, delayed = KEYS[1], KEYS[2], KEYS[3]
local terminal = { completed = KEYS[4], failed = KEYS[5], cancelled = KEYS[6] }
local columns, id = { unpack(KEYS, 7, 10) }, ARGV[1]

local state
for name, place in pairs(terminal) do
  if redis.call('ZSCORE', place, id) then state = name end
end
if not state then
  if redis.call('HEXISTS', payload, id) == 0 then return { 'unknown' } end
  if redis.call('HEXISTS', locks, id) == 1 then
    state = 'running'
  elseif redis.call('ZSCORE', delayed, id) then
    state = 'delayed'
  else
    state = 'waiting'
  end
end
local values = {}
for i, column in ipairs(columns) do values[i] = redis.call('HGET', column, id) or '' end
return { 'found', state, unpack(values) }
