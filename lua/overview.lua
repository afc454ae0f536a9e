-- Reads a summary of a task. Changes nothing.
-- Uses     now counts states spare lanes lane_id
-- KEYS[1]  wait:high    (list)    ids
-- KEYS[2]  wait         (list)    ids
-- KEYS[3]  wait:low     (list)    ids
-- KEYS[4]  locks        (hash)    id -> token
-- KEYS[5]  delayed      (zset)    ids by due time, ms
-- KEYS[6]  completed    (zset)    ids by finish time, ms
-- KEYS[7]  failed       (zset)    ids by finish time, ms
-- KEYS[8]  cancelled    (zset)    ids by finish time, ms
-- KEYS[9]  active       (set)     running ids heard from since the snapshot
-- KEYS[10] candidates   (set)     running ids silent since the snapshot
-- KEYS[11] meta         (hash)    options and counters
-- KEYS[12] tombstones   (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[13] enqueuedAt   (hash)    column
-- KEYS[14] dispatchedAt (hash)    column
-- KEYS[15] payload      (hash)    column
-- KEYS[16] claimed      (hash)    id -> fence of a held job that has not begun
-- KEYS[17] outcome      (hash)    column
-- KEYS[18] finalizing   (zset)    ids whose hook has to run, by due time, ms
-- KEYS[19] parked       (hash)    id -> fence, phase and silent since (ms) of a parked job
-- KEYS[20] lanes        (zset)    entries of waiting jobs with keys: see lib/lanes.lua
-- KEYS[21] turns        (zset)    keys by turn: see lib/lanes.lua
-- Returns  {'seen', now (ms), counts (waiting, delayed, claimed, running, finalizing, completed, failed, cancelled),
--          heads (per list, and of the key that is next, the id of the first job, '': none, and since when it waits,
--          ms, '': its id shows it), first due time (ms) or '', candidates, active, fields of meta, parked jobs, jobs
--          that failed and jobs that completed in the last 5 minutes, delayed jobs that are due, jobs in all, keys (how
--          many are ready, rest and are full, and since when the first one is full, ms or ''; empty without keys)}
-- Emits    nothing
-- Refuses  WRONGTYPE
local lists = { wait_high, wait, wait_low }
local counts = count_jobs(lists, lanes, delayed, claimed, locks, { outcome = outcome, finalizing = finalizing },
  { completed, failed, cancelled }, meta)
local has_tombstones, heads = redis.call('HLEN', tombstones) > 0, {}
local places = { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed,
  finalizing = finalizing }
for _, list in ipairs(lists) do
  local first, from = nil, 0
  -- The search ends after this number of tombstones.
  while not first and from < 3 * BATCH do
    local ids = redis.call('LRANGE', list, from, from + (has_tombstones and BATCH - 1 or 0))
    local spare = has_tombstones and spare_of(ids, tombstones, payload, locks, places) or {}
    for at, id in ipairs(ids) do
      if not spare[at] then
        first = id
        break
      end
    end
    from = #ids < BATCH and 3 * BATCH or from + BATCH
  end
  heads[#heads + 1] = first or ''
  local since = first and redis.call('HGET', enqueued_at, first)
  heads[#heads + 1] = since or first and redis.call('HGET', dispatched_at, first) or ''
end
-- Of the lanes, that of the key that is next.
local next_key, turn = unpack(redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES'))
local can_start = turn and tonumber(turn) < RESTING
local first = can_start and redis.call('ZRANGE', lanes, '[' .. next_key .. '\0', '+', 'BYLEX', 'LIMIT', 0, 1)[1]
local _, next_id = names_in_lane(first or '\0', true)
heads[#heads + 1] = next_id
heads[#heads + 1] = first and redis.call('HGET', dispatched_at, next_id) or ''
local lane_counts = {}
if next_key then
  local longest = redis.call('ZRANGE', turns, FULL, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  lane_counts = { tostring(redis.call('ZCOUNT', turns, '-inf', '(' .. RESTING)),
    tostring(redis.call('ZCOUNT', turns, RESTING, '(' .. FULL)), tostring(redis.call('ZCOUNT', turns, FULL, '+inf')),
    longest and string.format('%d', tonumber(longest) - FULL) or '' }
end
local now = math.floor(now_us() / 1000)
local lately = string.format('%d', now - 300000)
return { 'seen', string.format('%d', now), counts, heads,
  redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or '', redis.call('SCARD', candidates),
  redis.call('SCARD', active), redis.call('HGETALL', meta), redis.call('HLEN', parked),
  redis.call('ZCOUNT', failed, lately, '+inf'), redis.call('ZCOUNT', completed, lately, '+inf'),
  redis.call('ZCOUNT', delayed, '-inf', string.format('%d', now)), redis.call('HLEN', payload),
  lane_counts }
