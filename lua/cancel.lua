-- Cancels waiting and delayed jobs, and flags held ones for their worker. A waiting job leaves a tombstone in its list.
-- Uses     now shrink_first words events emit wake types may terminal columns nodes enter finish end_event failure
-- Uses     tombstones states named
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  wait:high     (list)    ids
-- KEYS[8]  wait          (list)    ids
-- KEYS[9]  wait:low      (list)    ids
-- KEYS[10] cancelling    (hash)    id -> reason
-- KEYS[11] meta          (hash)    options, event total, pause, number of tombstones
-- KEYS[12] events        (stream)  one entry
-- KEYS[13] tombstones    (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[14] attempt       (hash)    column
-- KEYS[15] stalledCount  (hash)    column
-- KEYS[16] result        (hash)    column
-- KEYS[17] error         (hash)    column
-- KEYS[18] options       (hash)    column
-- KEYS[19] maxCount      (hash)    column
-- KEYS[20] priority      (hash)    column
-- KEYS[21] dispatchedAt  (hash)    column
-- KEYS[22] snoozes       (hash)    column
-- KEYS[23] enqueuedAt    (hash)    column
-- KEYS[24] recovery      (hash)    column
-- KEYS[25] expiresAt     (hash)    column
-- KEYS[26] checkpoint    (hash)    column
-- KEYS[27] progress      (hash)    column
-- KEYS[28] outcome       (hash)    column
-- KEYS[29] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[30] wake          (zset)    marker for idle workers
-- KEYS[31] claimed       (hash)    id -> fence of a held job that has not begun
-- KEYS[32] outbox        (zset)    ended nodes to report to their workflow, by end time, ms
-- ARGV[1]  reason        (text)
-- ARGV[2]  channel       (pub/sub channel for hints to the keepers that hold the jobs)
-- ARGV[3]  by            (who asks; '' if not given)
-- ARGV[4]  jobs          (pairs id, stamp: at most 200; see lib/named.lua)
-- Returns  {'told', one word per job}: ended, requested (its worker gets the flag), or why not: its state (finalizing:
--          its outcome is stored), unknown, changed (it no longer has the stamp)
-- Emits    cancelled, finalizing
-- Refuses  WRONGTYPE before the first write
local reason, channel, by = ARGV[1], ARGV[2], ARGV[3]
local lists, places = { wait_high, wait, wait_low },
  { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed, finalizing = finalizing,
    outcome = outcome, errors = errors, outbox = outbox }
local columns = { payload, attempt, stalled_count, result, errors, options, max_count, priority, dispatched_at,
  snoozes, enqueued_at, recovery, expires_at, checkpoint, progress, outcome }

local ids, states = named_jobs(4, keys)
places.columns = columns
expect_types(lists, {}, columns, { finalizing, outbox })
expect_types({}, {}, { cancelling, tombstones, meta, claimed }, {})
local event_mode, keep, hook, declared = unpack(redis.call('HMGET', meta, 'eventMode', 'keepCancelled', 'hook',
  'declaredAt'))
local _, now_ms = now_us()
local ended = { ids = {}, values = {}, how = { keep = { cancelled = keep }, now_ms = now_ms } }
local stored = { ids = {}, values = {}, how = { keep = { cancelled = keep }, now_ms = now_ms, hook = true } }
local waited, put_off, held, failure = {}, {}, {}, error_json('cancelled', reason)
for at, id in ipairs(ids) do
  local state = states[at]
  if state == 'running' or state == 'claimed' then
    states[at], held[#held + 1] = 'requested', id
  elseif state == 'waiting' or state == 'delayed' then
    local place = state == 'waiting' and waited or put_off
    place[#place + 1] = id
    -- Until a worker has declared the task it is unknown whether it has a hook: its first settle decides. A node of a
    -- workflow ends at once, since its instance waits for it.
    local group = (hook == '1' or not declared and string.byte(id) ~= 126) and stored or ended
    local count = #group.ids
    group.ids[count + 1], group.values[2 * count + 1], group.values[2 * count + 2] = id, id, failure
    states[at] = 'ended'
  end
end
local total = #ended.ids + #stored.ids

local elsewhere = { delayed, completed, failed, cancelled, finalizing }
must_be_allowed_all('HDEL HSETNX', { cancelling })
if total > 0 then
  must_be_allowed_to_leave(lists, columns, tombstones, meta, locks, elsewhere)
  must_be_allowed_all('ZREM', { delayed })
  must_be_allowed_all('ZADD', { outbox, unpack(elsewhere) })
  must_be_allowed_all('HSET', { errors, result, outcome })
end
shrink_first('HDEL', cancelling)
for _, id in ipairs(held) do
  redis.call('HSETNX', cancelling, id, reason)
  redis.pcall('PUBLISH', channel, id)
end
if total > 0 then
  if #put_off > 0 then redis.call('ZREM', delayed, unpack(put_off)) end
  count_tombstones(tombstones, meta, waited, 1)
  local fields = by == '' and {} or { 'by', by }
  for _, group in ipairs({ stored, ended }) do
    if #group.ids > 0 then finish(places, group.how, 'cancelled', group.ids, group.values) end
    add_finished(fields, group.how, 'cancelled', group.ids, group.ids)
  end
  if #waited > 0 then strip_tombstones(lists, tombstones, meta, payload, locks, elsewhere) end
  if #stored.ids > 0 then ring_wake(wake) end
  if #ended.ids > 0 then redis.pcall('HINCRBY', meta, 'out', #ended.ids) end
  if event_mode ~= 'off' then emit_event(events, meta, 'events', total, '', fields) end
end
return { 'told', unpack(states) }
