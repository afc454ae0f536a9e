-- Pauses or resumes a schedule: while it is paused, its ticks are counted and make no jobs.
-- Uses     now shrink_first
-- KEYS[1]  schedules:rule    (hash)  schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[2]  schedules:paused  (hash)  schedule -> pause: when, by whom, why
-- ARGV[1]  name              (of the schedule)
-- ARGV[2]  why               (JSON object with by and reason; '' to resume)
-- Returns  {'paused'} or {'resumed'}; {'already'}: it is so; {'unknown'}: no such schedule; then nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local name, why = ARGV[1], ARGV[2]
local is_paused = redis.call('HEXISTS', schedules_paused, name) == 1
if redis.call('HEXISTS', schedules_rule, name) == 0 then return { 'unknown' } end
if is_paused == (why ~= '') then return { 'already' } end
shrink_first('HDEL', schedules_paused)
if why == '' then
  redis.call('HDEL', schedules_paused, name)
  return { 'resumed' }
end
local pause = string.format('{"at":%d,', now_us() / 1000) .. string.sub(why, 2)
redis.call('HSET', schedules_paused, name, pause)
return { 'paused' }
