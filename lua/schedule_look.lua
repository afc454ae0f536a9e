-- Finds the schedules with a due tick, and those whose pending tick may fire since their last job has ended.
-- Uses     now shrink_first types filled terminal known object schedules
-- KEYS[1]  schedules          (zset)  schedules by the time of their next tick, ms
-- KEYS[2]  schedules:rule     (hash)  schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[3]  schedules:input    (hash)  schedule -> payload of its jobs
-- KEYS[4]  schedules:ledger   (hash)  schedule -> next tick, counts, last tick and job
-- KEYS[5]  schedules:paused   (hash)  schedule -> pause
-- KEYS[6]  schedules:pending  (zset)  schedules with a pending tick, by when they were looked at if there are many, ms
-- KEYS[7]  payload            (hash)  column
-- KEYS[8]  completed          (zset)  ids by finish time, ms
-- KEYS[9]  failed             (zset)  ids by finish time, ms
-- KEYS[10] cancelled          (zset)  ids by finish time, ms
-- KEYS[11] cancelling         (hash)  id -> reason
-- ARGV[1]  most               (schedules to return)
-- ARGV[2]  skipped            (due schedules before the first to return, which the caller cannot fire; missing: 0)
-- Returns  {'looked', now (ms), time of the first tick after now (ms) or -, 1 if more are due else 0, names of rows
--          that cannot be read, rows, jobs}. A row: name, digest, zone data, JSON, tick (ms), the one before (ms) or
--          -, paused (0 or 1), bytes of the input, pending (0 or 1). About 256 KiB of JSON at most. Rows that cannot
--          be read are looked at again after 60 s, so that they never hide others. Jobs, at most 200: a pending tick
--          replaces each, and its cancel was lost or has not arrived yet
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local most, _, now_ms = tonumber(ARGV[1]), now_us()
local now, rows, unreadable, replaced, bytes = string.format('%d', now_ms), {}, {}, {}, 0
expect_types({}, {}, { schedules_rule, schedules_input, schedules_ledger, schedules_paused, payload },
  { schedules, schedules_pending })
local ended = filled('ZCARD', completed, failed, cancelled)

-- Whether the row can be read. If so, it is returned with this tick.
local function add_row(name, ledger, due, before, is_pending)
  local rule = rule_of(redis.call('HGET', schedules_rule, name))
  local size = redis.call('HSTRLEN', schedules_input, name)
  if not (rule and ledger and due and size > 0) then return false end
  bytes = bytes + #rule.json
  rows[#rows + 1] = { name, rule.digest, rule.zone, rule.json, word_of(due), word_of(before),
    word_of(redis.call('HEXISTS', schedules_paused, name)), word_of(size), is_pending }
  return true
end

-- Whether a tick of the schedule replaces this job, and no cancel of it is under way.
local function is_replaced(name, job)
  local rule = rule_of(redis.call('HGET', schedules_rule, name))
  if not rule or object_of(rule.json).overlap ~= 'replace' then return false end
  return redis.call('HEXISTS', cancelling, job) == 0
end

local due = redis.call('ZRANGE', schedules, '-inf', now, 'BYSCORE', 'LIMIT', ARGV[2] or 0, most + 1)
local more = #due > most
for at = 1, math.min(#due, most) do
  if bytes > LARGE / 2 then
    more = true
    break
  end
  local ledger = ledger_of(redis.call('HGET', schedules_ledger, due[at]))
  local is_read = add_row(due[at], ledger, ledger and ledger.due, ledger and ledger.last, '0')
  if not is_read then unreadable[#unreadable + 1] = due[at] end
end
local held, ledgers, jobs = redis.call('ZRANGE', schedules_pending, 0, BATCH - 1), {}, {}
for at, name in ipairs(held) do
  ledgers[at] = ledger_of(redis.call('HGET', schedules_ledger, name)) or {}
  jobs[at] = ledgers[at].job or ''
end
local _, open = known_jobs(payload, ended, jobs)
for at, name in ipairs(held) do
  local ledger, job = ledgers[at], jobs[at]
  local waits = ledger.pending and redis.call('HEXISTS', schedules_paused, name) == 0
  local may_fire = waits and ledger.pending <= now_ms and not open[job]
  more = more or may_fire and #rows >= most
  if may_fire and #rows < most then add_row(name, ledger, ledger.pending, ledger.before, '1') end
  if waits and open[job] and is_replaced(name, job) then replaced[#replaced + 1] = job end
end

-- A shrinking command first: a server at maxmemory accepts the others.
shrink_first('ZREM', schedules)
for _, name in ipairs(unreadable) do redis.call('ZADD', schedules, string.format('%d', now_ms + 60000), name) end
for at, name in ipairs(held) do
  if not ledgers[at].pending then
    redis.call('ZREM', schedules_pending, name)
  elseif #held == BATCH then
    redis.call('ZADD', schedules_pending, now, name)
  end
end
local next_at = redis.call('ZRANGE', schedules, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
return { 'looked', now, next_at or '-', more and 1 or 0, unreadable, rows, replaced }
