-- Reads schedules as they are stored, with the state of the last job of each. Changes nothing.
-- Uses     now states schedules
-- KEYS[1]  schedules         (zset)  schedules by the time of their next tick, ms
-- KEYS[2]  schedules:rule    (hash)  schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[3]  schedules:input   (hash)  schedule -> payload of its jobs
-- KEYS[4]  schedules:ledger  (hash)  schedule -> next tick, counts, last tick and job
-- KEYS[5]  schedules:paused  (hash)  schedule -> pause
-- KEYS[6]  schedules:ticks   (hash)  schedule -> its last ticks
-- KEYS[7]  schedules:differ  (hash)  schedule -> when (ms) and which worker has another one in its code
-- KEYS[8]  payload           (hash)  column
-- KEYS[9]  locks             (hash)  id -> token
-- KEYS[10] delayed           (zset)  ids by due time, ms
-- KEYS[11] completed         (zset)  ids by finish time, ms
-- KEYS[12] failed            (zset)  ids by finish time, ms
-- KEYS[13] cancelled         (zset)  ids by finish time, ms
-- KEYS[14] claimed           (hash)  id -> fence of a held job that has not begun
-- KEYS[15] outcome           (hash)  column
-- KEYS[16] finalizing        (zset)  ids whose hook has to run, by due time, ms
-- ARGV[1]  names             (schedules, at most 100)
-- Returns  {'read', now (ms), rows}. A row: what the hashes rule, ledger, paused, ticks and differing hold ('':
--          nothing), bytes of the input, time of its next tick (ms) or '', state of its last job or ''. It is empty
--          without a rule
-- Emits    nothing
-- Refuses  WRONGTYPE
local _, now_ms = now_us()
local places = { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed, claimed = claimed,
  outcome = outcome, finalizing = finalizing }
local rows = {}
for at, name in ipairs(ARGV) do
  local rule, row = redis.call('HGET', schedules_rule, name), {}
  if rule then
    local line = redis.call('HGET', schedules_ledger, name)
    local ledger = ledger_of(line)
    local state = ledger and ledger.job and states_of(payload, locks, places, { ledger.job })[1] or ''
    row = { rule, line or '', redis.call('HGET', schedules_paused, name) or '',
      redis.call('HGET', schedules_ticks, name) or '', redis.call('HGET', schedules_differ, name) or '',
      word_of(redis.call('HSTRLEN', schedules_input, name)), redis.call('ZSCORE', schedules, name) or '', state }
  end
  rows[at] = row
end
return { 'read', string.format('%d', now_ms), rows }
