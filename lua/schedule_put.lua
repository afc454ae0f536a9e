-- Writes a schedule: new, or with another rule or input. Its next tick is the first after `basis`.
-- Uses     now shrink_first types schedules
-- KEYS[1]  schedules          (zset)  schedules by the time of their next tick, ms
-- KEYS[2]  schedules:rule     (hash)  schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[3]  schedules:input    (hash)  schedule -> payload of its jobs
-- KEYS[4]  schedules:ledger   (hash)  schedule -> next tick, counts, last tick and job
-- KEYS[5]  schedules:ticks    (hash)  schedule -> its last ticks
-- KEYS[6]  schedules:paused   (hash)  schedule -> pause
-- KEYS[7]  schedules:pending  (zset)  schedules with a tick that waits for their last job
-- KEYS[8]  schedules:keepers  (zset)  workers by when they were last heard from, ms
-- KEYS[9]  schedules:named    (zset)  schedules in code, by when a live worker last named them, ms
-- KEYS[10] schedules:gone     (zset)  removed schedules by when, ms
-- KEYS[11] meta               (hash)  wire version, number of partitions, number of missed ticks
-- ARGV[1]  wire       (version of the caller)
-- ARGV[2]  name       (of the schedule)
-- ARGV[3]  source     (code: declared by a worker; put: at run time)
-- ARGV[4]  stamp      (server time of the worker's start, ms; 0 at run time)
-- ARGV[5]  by         (worker or person)
-- ARGV[6]  digest     (of rule and input)
-- ARGV[7]  zone       (version of the caller's zone data, or -)
-- ARGV[8]  json       (the rule)
-- ARGV[9]  input      (payload of its jobs)
-- ARGV[10] basis      (ms: the larger of the server's time and the last tick, as the caller read them)
-- ARGV[11] due        (ms: the next tick; - for none)
-- ARGV[12] at         (ms: the same with its jitter; - for none)
-- ARGV[13] replaces   (1: a due tick of a rule that the caller cannot read counts as missed, else 0)
-- ARGV[14] channel    (pub/sub channel for hints to keepers)
-- ARGV[15] partitions (number that the caller assumes)
-- Returns  {'written', 1 if it is new else 0, 1 if a worker was heard from within 15 s else 0}
-- Returns  {'same', the same last word}: rule and input are in force. A row in code takes the larger stamp, a row in
--          code that is put becomes a put row, and a missing input is written
-- Returns  {'due'}: a tick of the rule in force must fire first; nothing is written
-- Returns  {'kept'}: a row that was put, a later start or newer zone data is in force; nothing is written
-- Returns  {'again'}: `basis` or `due` does not fit the server's time and the last tick; nothing is written
-- Returns  {'partitions', how many the task has}: not what the caller assumes; nothing is written
-- Emits    nothing
-- Refuses  NEWERWIRE: the task's data was written by a newer version
--          WRONGTYPE before the first write
local wire, name, source, stamp, by, digest, zone, json, input = unpack(ARGV, 1, 9)
local basis, due, channel, parts = tonumber(ARGV[10]), tonumber(ARGV[11]) or false, ARGV[14], ARGV[15]
local _, now_ms = now_us()
local now, written, has_parts = string.format('%d', now_ms), unpack(redis.call('HMGET', meta, 'wire', 'partitions'))
if tonumber(written or 0) > tonumber(wire) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. written)
end
-- A task without data takes the number of its first writer.
if (has_parts or (written and '1' or parts)) ~= parts then return { 'partitions', has_parts or '1' } end
expect_types({}, {}, { schedules_rule, schedules_input, schedules_ledger, schedules_ticks, schedules_paused },
  { schedules, schedules_pending, schedules_keepers, schedules_named, schedules_gone })
local line = redis.call('HGET', schedules_rule, name)
local old, ledger = rule_of(line), ledger_of(redis.call('HGET', schedules_ledger, name))
-- Workers that are dead since the clock went back have later times.
local since = string.format('%d', now_ms - 15000)
local has_keeper = #redis.call('ZRANGE', schedules_keepers, since, now, 'BYSCORE', 'LIMIT', 0, 1)
local new = { digest = digest, zone = zone, source = source, stamp = tonumber(stamp), by = by, json = json }
if old and source == 'code' and (old.source == 'put' or old.stamp > new.stamp) then return { 'kept' } end
if old and ledger and old.digest == digest then
  if zone < old.zone then return { 'kept' } end
  if zone == old.zone then
    shrink_first('HDEL', schedules_rule)
    if source ~= old.source or new.stamp > old.stamp then
      redis.call('HSET', schedules_rule, name, rule_line(new))
    end
    if source == 'put' then redis.call('ZREM', schedules_named, name) end
    -- Meanwhile a look may have moved the row to a later time, as one without an input.
    if redis.call('HSETNX', schedules_input, name, input) == 1 and ledger.due then
      redis.call('ZADD', schedules, string.format('%d', ledger.due), name)
    end
    return { 'same', has_keeper }
  end
end
-- A removed schedule that returns keeps its counts, but starts from now.
local gone = tonumber(redis.call('ZSCORE', schedules_gone, name) or 0)
local is_kept = gone > now_ms - KEPT_MS
local returns = not line and ledger and is_kept
if not line then ledger = returns and ledger or nil end
if returns then ledger.last, ledger.due, ledger.pending, ledger.before = false, false, false, false end
local is_due = ledger and ledger.due and ledger.due <= now_ms
if is_due and old and ARGV[13] ~= '1' then return { 'due' } end
local last = is_due and ledger.due or ledger and ledger.last or 0
local newest = math.max(now_ms, last)
if basis < last or basis > newest or basis < newest - 60000 or due and due <= basis then return { 'again' } end

-- A growing command first: a server at maxmemory refuses the call whole.
redis.call('HSET', schedules_input, name, input)
redis.call('HSET', schedules_rule, name, rule_line(new))
if not written then redis.call('HSET', meta, 'wire', wire) end
if not has_parts and parts ~= '1' then redis.call('HSET', meta, 'partitions', parts) end
if not line and not returns then redis.call('HDEL', schedules_ticks, name) end
-- A pause is kept although the ledger was damaged: a person decided it.
if not line and not is_kept then redis.call('HDEL', schedules_paused, name) end
ledger = ledger or new_ledger(basis)
if is_due then
  ledger.missed, ledger.at_least, ledger.last = ledger.missed + 1, '+', ledger.due
  local ticks = recent_ticks(redis.call('HGET', schedules_ticks, name), { tick_word(ledger.due, 'm', 1) })
  redis.call('HSET', schedules_ticks, name, ticks)
  redis.pcall('HINCRBY', meta, 'ticksMissed', 1)
end
ledger.due = due
redis.call('HSET', schedules_ledger, name, ledger_line(ledger))
if due then redis.call('ZADD', schedules, ARGV[12], name) else redis.call('ZREM', schedules, name) end
if not ledger.pending then redis.call('ZREM', schedules_pending, name) end
redis.call('ZREM', schedules_gone, name)
if source == 'code' then
  redis.call('ZADD', schedules_named, now, name)
else
  redis.call('ZREM', schedules_named, name)
end
redis.pcall('PUBLISH', channel, '~schedule')
return { 'written', line and 0 or 1, has_keeper }
