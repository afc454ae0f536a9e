-- Removes a schedule. Jobs that it wrote stay. Its ledger and its pause are kept for 30 days.
-- Uses     now types schedules gone
-- KEYS[1]  schedules          (zset)  schedules by the time of their next tick, ms
-- KEYS[2]  schedules:rule     (hash)  schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[3]  schedules:input    (hash)  schedule -> payload of its jobs
-- KEYS[4]  schedules:ledger   (hash)  schedule -> next tick, counts, last tick and job
-- KEYS[5]  schedules:ticks    (hash)  schedule -> its last ticks
-- KEYS[6]  schedules:paused   (hash)  schedule -> pause
-- KEYS[7]  schedules:pending  (zset)  schedules with a tick that waits for their last job
-- KEYS[8]  schedules:named    (zset)  schedules in code, by when a live worker last named them, ms
-- KEYS[9]  schedules:differ   (hash)  schedule -> when (ms) and which worker has another one in its code
-- KEYS[10] schedules:gone     (zset)  removed schedules by when, ms
-- KEYS[11] meta               (hash)  number of overlapped ticks
-- ARGV[1]  name               (of the schedule)
-- Returns  {'removed'}; {'unknown'}: no such schedule; nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local name, _, now_ms = ARGV[1], now_us()
expect_types({}, {}, { schedules_rule, schedules_input, schedules_ledger, schedules_ticks, schedules_paused,
  schedules_differ, meta }, { schedules, schedules_pending, schedules_named, schedules_gone })
local has_rule = redis.call('HEXISTS', schedules_rule, name) == 1
if not has_rule and not redis.call('ZSCORE', schedules, name) then return { 'unknown' } end
remove_schedule(keys, name, now_ms)
return { 'removed' }
