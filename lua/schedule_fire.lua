-- Fires ticks of schedules: counts each tick, and writes a job for each that fires. The input is copied on the server.
-- Uses     now words events emit wake types filled terminal known fields largest schedules ticks pointer tick_jobs
-- KEYS[1]  schedules          (zset)    schedules by the time of their next tick, ms
-- KEYS[2]  schedules:rule     (hash)    schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[3]  schedules:input    (hash)    schedule -> payload of its jobs
-- KEYS[4]  schedules:ledger   (hash)    schedule -> next tick, counts, last tick and job
-- KEYS[5]  schedules:ticks    (hash)    schedule -> its last ticks
-- KEYS[6]  schedules:paused   (hash)    schedule -> pause
-- KEYS[7]  schedules:pending  (zset)    schedules with a tick that waits for their last job
-- KEYS[8]  payload            (hash)    id -> payload
-- KEYS[9]  completed          (zset)    ids by finish time, ms
-- KEYS[10] failed             (zset)    ids by finish time, ms
-- KEYS[11] cancelled          (zset)    ids by finish time, ms
-- KEYS[12] wait:high          (list)    ids
-- KEYS[13] wait               (list)    ids
-- KEYS[14] wait:low           (list)    ids
-- KEYS[15] options            (hash)    id -> overrides, JSON
-- KEYS[16] priority           (hash)    id -> high or low
-- KEYS[17] dispatchedAt       (hash)    id -> time, ms
-- KEYS[18] meta               (hash)    default priority, event mode, totals, largest payload, pause
-- KEYS[19] events             (stream)  one entry
-- KEYS[20] wake               (zset)    marker for idle workers
-- KEYS[21] laneOf             (hash)    id -> key
-- ARGV[1]  firings  (per schedule, at most 25: name, digest, version of the caller's zone data, overlap, tick as the
--                    caller knows it (ms), last tick of this call (ms), the next one (ms) or -, the same with jitter
--                    or -, missed ticks, paused ticks, 1 if missed is a lower bound else 0, 1 if only the pending tick
--                    fires else 0, number of ticks, then four words per tick: ms, the one before (ms) or -, job id,
--                    overrides as JSON. At most 200 ticks in all)
-- Returns  {'fired', now (ms), time of the first tick after now (ms) or -, 1 if ticks are still due else 0, per
--          schedule one text}: done, new jobs, and the job that the newest tick replaces or -; or one word, and nothing
--          is written for it: unknown: no such schedule; unreadable; changed: another rule or input, or it was paused
--          or resumed; older: the row has newer zone data, unless the tick is 10 s late; moved: another tick is next,
--          or pending; early: a tick is later than now, the one after is not later, or the last job of the pending tick
--          has not ended
-- Emits    dispatched, scheduled, overlapped, missed
-- Refuses  more than 200 ticks; WRONGTYPE before the first write
local _, now_ms = now_us()
local now, firings, order, rows, ids, at = string.format('%d', now_ms), {}, {}, {}, {}, 1
expect_types({ wait_high, wait, wait_low }, {}, { schedules_rule, schedules_input, schedules_ledger, schedules_ticks,
  schedules_paused, payload, options, priority, dispatched_at, lane_of }, { schedules, schedules_pending })
local ended = filled('ZCARD', completed, failed, cancelled)
local task = fields_of(meta, { 'priority', 'eventMode', 'largest', 'paused', 'in', 'key', 'partitions' })
while ARGV[at] do
  local name, digest, zone, overlap, due, through, next_due, next_at, missed, paused, lower, is_pending, count =
    unpack(ARGV, at, at + 12)
  local firing = { name = name, digest = digest, zone = zone, overlap = overlap, due = tonumber(due), ticks = {},
    through = tonumber(through), next_due = tonumber(next_due) or false, next_at = tonumber(next_at) or 0,
    missed = tonumber(missed), paused = tonumber(paused), at_least = lower == '1', is_pending = is_pending == '1' }
  for tick = at + 13, at + 9 + 4 * count, 4 do
    ids[#ids + 1] = ARGV[tick + 2]
    firing.ticks[#firing.ticks + 1] = { due = tonumber(ARGV[tick]), previous = tonumber(ARGV[tick + 1]) or false,
      id = ARGV[tick + 2], options = ARGV[tick + 3] }
  end
  firings[#firings + 1], at = firing, at + 13 + 4 * count
end
if #ids > BATCH then return redis.error_reply('ERR more than ' .. BATCH .. ' ticks') end
for _, firing in ipairs(firings) do
  local name = firing.name
  if not rows[name] then
    local line = redis.call('HGET', schedules_rule, name)
    local row = { name = name, is_known = line, rule = rule_of(line), words = {},
      has_input = redis.call('HEXISTS', schedules_input, name) == 1,
      is_paused = redis.call('HEXISTS', schedules_paused, name) == 1,
      ledger = ledger_of(redis.call('HGET', schedules_ledger, name)),
      at = tonumber(redis.call('ZSCORE', schedules, name) or 0) }
    if row.ledger and row.ledger.job then ids[#ids + 1] = row.ledger.job end
    rows[name], order[#order + 1] = row, row
  end
end
local exists, open = known_jobs(payload, ended, ids)
local out = { now_ms = now_ms, exists = exists, open = open, jobs = {}, scheduled = {}, overlapped = {}, runs = {},
  fired = 0, missed = 0, paused = 0 }
local reply = { 'fired', now, '-', 0 }
for _, firing in ipairs(firings) do
  local row, jobs = rows[firing.name], #out.jobs
  local refused = refusal_of(row, firing, out)
  row.is_written = row.is_written or not refused
  local replaced = not refused and account_for(row, firing, out)
  reply[#reply + 1] = refused or table.concat({ 'done', #out.jobs - jobs, replaced or '-' }, ' ')
end

-- An input may be large, so only those of new jobs are read.
for _, job in ipairs(out.jobs) do
  job.row.input = job.row.input or redis.call('HGET', schedules_input, job.row.name)
  job.input = job.row.input
end
local added = #out.jobs > 0 and write_tick_jobs(keys, out.jobs, task, now_ms) or {}
for _, row in ipairs(order) do
  if row.is_written then write_row(keys, row, now) end
end
for _, total in ipairs({ { 'Fired', out.fired }, { 'Overlapped', #out.overlapped }, { 'Missed', out.missed },
  { 'Paused', out.paused } }) do
  if total[2] > 0 then redis.pcall('HINCRBY', meta, 'ticks' .. total[1], total[2]) end
end
local fields, count = {}, 2 * #added + #out.overlapped + #out.runs
add_words(fields, 'dispatched', added)
add_words(fields, 'scheduled', out.scheduled)
add_words(fields, 'overlapped', out.overlapped)
add_words(fields, 'missed', out.runs)
if count > 0 and task.eventMode ~= 'off' then emit_event(events, meta, 'events', count, '', fields) end
if #added > 0 and not task.paused then ring_wake(wake) end
reply[3] = redis.call('ZRANGE', schedules, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2] or '-'
reply[4] = redis.call('ZCOUNT', schedules, '-inf', now) > 0 and 1 or 0
return reply
