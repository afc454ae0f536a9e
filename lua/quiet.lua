-- Records among the events of a task that a person asked a worker to claim no more jobs, or to claim jobs again.
-- Uses     now shrink_first events emit
-- KEYS[1]  meta    (hash)    event total
-- KEYS[2]  events  (stream)  one entry
-- ARGV[1]  by      (who asks)
-- ARGV[2]  word    ('quiet' or 'unquiet')
-- ARGV[3]  worker  (id)
-- Returns  {'recorded'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
if redis.call('HGET', meta, 'eventMode') ~= 'off' then
  shrink_first('HDEL', meta)
  emit_event(events, meta, 'events', 0, '', { 'by', ARGV[1], ARGV[2], ARGV[3] })
end
return { 'recorded' }
