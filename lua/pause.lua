-- Pauses a task: no job is claimed any more, and running jobs continue. An entry among the events says by whom and why.
-- Uses     now shrink_first events emit
-- KEYS[1]  meta    (hash)    pause: when, by whom, why; event total
-- KEYS[2]  events  (stream)  one entry
-- ARGV[1]  by      (who asks)
-- ARGV[2]  reason  (text)
-- Returns  {'paused'}; or {'already', when (ms), by whom, why}: nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local by, reason = ARGV[1], ARGV[2]
local paused, paused_by, paused_for, event_mode =
  unpack(redis.call('HMGET', meta, 'paused', 'pausedBy', 'pauseReason', 'eventMode'))
if paused then return { 'already', paused, paused_by or '', paused_for or '' } end
shrink_first('HDEL', meta)
redis.call('HSET', meta, 'paused', string.format('%d', now_us() / 1000), 'pausedBy', by, 'pauseReason', reason)
if event_mode ~= 'off' then emit_event(events, meta, 'events', 0, '', { 'by', by, 'paused', reason }) end
return { 'paused' }
