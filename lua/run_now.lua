-- Moves delayed jobs to the front of their lists, before they are due.
-- Uses     now words events emit wake types may since back_to_wait states named
-- KEYS[1]  payload       (hash)    column
-- KEYS[2]  locks         (hash)    id -> token
-- KEYS[3]  delayed       (zset)    ids by due time, ms
-- KEYS[4]  completed     (zset)    ids by finish time, ms
-- KEYS[5]  failed        (zset)    ids by finish time, ms
-- KEYS[6]  cancelled     (zset)    ids by finish time, ms
-- KEYS[7]  wait:high     (list)    ids
-- KEYS[8]  wait          (list)    ids
-- KEYS[9]  wait:low      (list)    ids
-- KEYS[10] meta          (hash)    options, event total, pause, number of tombstones
-- KEYS[11] events        (stream)  one entry
-- KEYS[12] wake          (zset)    marker for idle workers
-- KEYS[13] priority      (hash)    column
-- KEYS[14] enqueuedAt    (hash)    column
-- KEYS[15] outcome       (hash)    column
-- KEYS[16] finalizing    (zset)    ids whose hook has to run, by due time, ms
-- KEYS[17] dispatchedAt  (hash)    column
-- ARGV[1]  by            (who asks; '' if not given)
-- ARGV[2]  jobs          (pairs id, stamp: at most 200; see lib/named.lua)
-- Returns  {'told', one word per job}: promoted, or why not: its state, unknown, changed
-- Emits    promoted
-- Refuses  WRONGTYPE before the first write
local by, lists = ARGV[1], { wait_high, wait, wait_low }
local ids, states = named_jobs(2, keys)
expect_types(lists, {}, { priority, enqueued_at }, {})
local now = {}
for at, id in ipairs(ids) do
  if states[at] == 'delayed' then states[at], now[#now + 1] = 'promoted', id end
end
if #now == 0 then return { 'told', unpack(states) } end
local event_mode, paused = unpack(redis.call('HMGET', meta, 'eventMode', 'paused'))
local now_ms = math.floor(now_us() / 1000)

must_be_allowed_all('ZREM', { delayed })
must_be_allowed_all('EXISTS HMGET', { priority })
must_be_allowed_all('LPUSH', lists)
must_be_allowed_all('HSET HGET', { enqueued_at, meta })
redis.call('ZREM', delayed, unpack(now))
back_to_wait('LPUSH', lists, priority, now, enqueued_at, now_ms)
local fields = by == '' and {} or { 'by', by }
add_words(fields, 'promoted', now)
if event_mode ~= 'off' then emit_event(events, meta, 'events', #now, '', fields) end
if not paused then ring_wake(wake) end
return { 'told', unpack(states) }
