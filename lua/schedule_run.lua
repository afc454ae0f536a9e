-- Writes jobs of a schedule that a person asks for. They are counted apart from its ticks.
-- Uses     now words events emit wake types filled terminal known fields largest schedules pointer tick_jobs
-- KEYS[1]  schedules:rule    (hash)    schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[2]  schedules:input   (hash)    schedule -> payload of its jobs
-- KEYS[3]  schedules:ledger  (hash)    schedule -> next tick, counts, last tick and job
-- KEYS[4]  schedules:ticks   (hash)    schedule -> its last ticks
-- KEYS[5]  payload           (hash)    id -> payload
-- KEYS[6]  completed         (zset)    ids by finish time, ms
-- KEYS[7]  failed            (zset)    ids by finish time, ms
-- KEYS[8]  cancelled         (zset)    ids by finish time, ms
-- KEYS[9]  wait:high         (list)    ids
-- KEYS[10] wait              (list)    ids
-- KEYS[11] wait:low          (list)    ids
-- KEYS[12] options           (hash)    id -> overrides, JSON
-- KEYS[13] priority          (hash)    id -> high or low
-- KEYS[14] dispatchedAt      (hash)    id -> time, ms
-- KEYS[15] meta              (hash)    default priority, event mode, totals, largest payload, pause
-- KEYS[16] events            (stream)  one entry
-- KEYS[17] wake              (zset)    marker for idle workers
-- KEYS[18] laneOf            (hash)    id -> key
-- ARGV[1]  name              (of the schedule)
-- ARGV[2]  digest            (of the rule and input that the caller knows)
-- ARGV[3]  last              (1: ticks wait for the newest of these jobs, as for the job of a tick, else 0)
-- ARGV[4]  jobs              (three words each, at most 200: tick (ms), job id, overrides as JSON)
-- Returns  {'ran', new jobs}; {'changed'}: another rule or input; {'unknown'}: no such schedule, or it cannot be read;
--          then nothing is written
-- Emits    dispatched
-- Refuses  more than 200 jobs; WRONGTYPE before the first write
local name, digest, becomes_last = ARGV[1], ARGV[2], ARGV[3] == '1'
local _, now_ms = now_us()
expect_types({ wait_high, wait, wait_low }, {}, { schedules_ticks, payload, options, priority, dispatched_at,
  lane_of }, {})
local rule, ledger = rule_of(redis.call('HGET', schedules_rule, name)), redis.call('HGET', schedules_ledger, name)
local input, ids, jobs, newest = redis.call('HGET', schedules_input, name), {}, {}, 0
local ended = filled('ZCARD', completed, failed, cancelled)
local task = fields_of(meta, { 'priority', 'eventMode', 'largest', 'paused', 'in', 'key', 'partitions' })
ledger = ledger_of(ledger)
if not (rule and ledger and input) then return { 'unknown' } end
if rule.digest ~= digest then return { 'changed' } end
for at = 5, #ARGV, 3 do ids[#ids + 1] = ARGV[at] end
if #ids > BATCH then return redis.error_reply('ERR more than ' .. BATCH .. ' jobs') end
local exists = known_jobs(payload, ended, ids)
for at, id in ipairs(ids) do
  if not exists[id] then
    exists[id], newest = true, math.max(newest, tonumber(ARGV[1 + 3 * at]))
    jobs[#jobs + 1] = { id = id, options = ARGV[3 + 3 * at], input = input }
  end
end
if #jobs == 0 then return { 'ran', 0 } end

local added = write_tick_jobs(keys, jobs, task, now_ms)
ledger.by_hand = ledger.by_hand + #added
if becomes_last then ledger.job, ledger.fired_at, ledger.late = added[#added], now_ms, false end
redis.call('HSET', schedules_ledger, name, ledger_line(ledger))
local recent = recent_ticks(redis.call('HGET', schedules_ticks, name), { tick_word(newest, 'h', #added) })
redis.call('HSET', schedules_ticks, name, recent)
local fields = {}
add_words(fields, 'dispatched', added)
if task.eventMode ~= 'off' then emit_event(events, meta, 'events', #added, '', fields) end
if not task.paused then ring_wake(wake) end
return { 'ran', #added }
