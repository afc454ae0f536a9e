-- Ends the pause of a task, and wakes an idle worker. An entry among the events says by whom.
-- Uses     now events emit wake
-- KEYS[1]  meta    (hash)    pause; event total
-- KEYS[2]  events  (stream)  one entry
-- KEYS[3]  wake    (zset)    marker for idle workers
-- ARGV[1]  by      (who asks)
-- Returns  {'resumed', how long it was paused (ms)}; or {'already'}: it is not paused
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local paused, event_mode = unpack(redis.call('HMGET', meta, 'paused', 'eventMode'))
if not paused then return { 'already' } end
redis.call('HDEL', meta, 'paused', 'pausedBy', 'pauseReason')
if event_mode ~= 'off' then emit_event(events, meta, 'events', 0, '', { 'by', ARGV[1], 'resumed', '' }) end
ring_wake(wake)
return { 'resumed', string.format('%d', math.max(0, now_us() / 1000 - (tonumber(paused) or 0))) }
