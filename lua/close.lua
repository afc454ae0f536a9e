-- Closes the call sequences of a worker that has stopped: a delayed copy of one of its calls then does nothing.
-- KEYS[1]  calls  (hash)  worker and call sequence -> last call number and its reply, or the word closed
-- ARGV[1]  lines  (the worker's fields in `calls`, at least one)
-- Returns  {'closed'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- A shrinking command first: only then a server at maxmemory accepts the others.
redis.call('HDEL', calls, '')
for _, line in ipairs(ARGV) do redis.call('HSET', calls, line, 'closed') end
return { 'closed' }
