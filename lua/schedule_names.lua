-- Records that a worker fires ticks, and the schedules in its code. Removes those that no worker names any more.
-- Uses     now shrink_first types schedules gone
-- KEYS[1]  schedules          (zset)  schedules by the time of their next tick, ms
-- KEYS[2]  schedules:rule     (hash)  schedule -> digest, zone data, code or put, stamp, by whom, JSON
-- KEYS[3]  schedules:input    (hash)  schedule -> payload of its jobs
-- KEYS[4]  schedules:ledger   (hash)  schedule -> next tick, counts, last tick and job
-- KEYS[5]  schedules:ticks    (hash)  schedule -> its last ticks
-- KEYS[6]  schedules:paused   (hash)  schedule -> pause
-- KEYS[7]  schedules:pending  (zset)  schedules with a tick that waits for their last job
-- KEYS[8]  schedules:keepers  (zset)  workers by when they were last heard from, ms
-- KEYS[9]  schedules:named    (zset)  schedules in code, by when a live worker last named them, ms
-- KEYS[10] schedules:differ   (hash)  schedule -> when (ms) and which worker has another one in its code
-- KEYS[11] schedules:gone     (zset)  removed schedules by when, ms
-- KEYS[12] meta               (hash)  number of overlapped ticks
-- ARGV[1]  worker  (id)
-- ARGV[2]  prunes  (1: up to 50 schedules in code that were not named for 10 minutes are removed, else 0; not if the
--                   worker itself was not heard from for a minute, as after a jump of the clock: then all seem unnamed)
-- ARGV[3]  names   (pairs: schedule in the code of the worker, digest of its rule and input; at most 500)
-- Returns  {'named', workers heard from within 15 s, schedules removed, names that have no row or an unreadable one, 1
--          if the worker was heard from within a minute before, else 0}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local worker, missing, removed = ARGV[1], {}, {}
local _, now_ms = now_us()
local now = string.format('%d', now_ms)
expect_types({}, {}, { schedules_rule, schedules_input, schedules_ledger, schedules_ticks, schedules_paused,
  schedules_differ, meta }, { schedules, schedules_pending, schedules_keepers, schedules_named, schedules_gone })

-- Members with a score before this many ms ago, the earliest first.
local function before(place, ago_ms, most)
  return redis.call('ZRANGE', place, '-inf', '(' .. string.format('%d', now_ms - ago_ms), 'BYSCORE', 'LIMIT', 0, most)
end

local heard = redis.call('ZSCORE', schedules_keepers, worker)
local is_steady = heard and now_ms - heard <= 60000
local prunes = ARGV[2] == '1' and is_steady
-- A shrinking command first: a server at maxmemory accepts the others.
shrink_first('ZREM', schedules_keepers)
redis.call('ZADD', schedules_keepers, now, worker)
for _, other in ipairs(before(schedules_keepers, 60000, BATCH)) do redis.call('ZREM', schedules_keepers, other) end
for at = 3, #ARGV, 2 do
  local name, digest = ARGV[at], ARGV[at + 1]
  redis.call('ZADD', schedules_named, now, name)
  local rule = rule_of(redis.call('HGET', schedules_rule, name))
  local ledger = ledger_of(redis.call('HGET', schedules_ledger, name))
  local is_whole = rule and ledger and redis.call('HEXISTS', schedules_input, name) == 1
  if not is_whole then missing[#missing + 1] = name end
  if is_whole and rule.source == 'code' and rule.digest ~= digest then
    redis.call('HSET', schedules_differ, name, now .. ' ' .. worker)
  end
end
for _, name in ipairs(prunes and before(schedules_named, 600000, 50) or {}) do
  local rule = rule_of(redis.call('HGET', schedules_rule, name))
  if rule and rule.source == 'code' then
    remove_schedule(keys, name, now_ms)
    removed[#removed + 1] = name
  else
    redis.call('ZREM', schedules_named, name)
  end
end
if prunes then forget_gone(keys, now_ms) end
local since = string.format('%d', now_ms - 15000)
-- Workers that are dead since the clock went back have later times.
local live = redis.call('ZRANGE', schedules_keepers, since, now, 'BYSCORE')
return { 'named', live, removed, missing, is_steady and 1 or 0 }
