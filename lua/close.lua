-- Closes the call sequences of a worker that has stopped: a delayed copy of one of its calls then does nothing.
-- KEYS[1]  replies  (hash)  worker and call sequence -> last call number and its reply, or the word closed
-- ARGV[1]  sequences  (the worker's fields in `replies`, at least one)
-- Returns  {'closed'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- A shrinking command first: only then a server at maxmemory accepts the others.
redis.call('HDEL', replies, '')
for _, sequence in ipairs(ARGV) do redis.call('HSET', replies, sequence, 'closed') end
return { 'closed' }
