-- Ends the lines of calls of a worker that has stopped: a copy of one of its calls that comes late does nothing.
-- KEYS[1]  calls  (hash)  worker and line -> last call number and its answer, or the word closed
-- ARGV[1]  lines  (fields of the worker)
-- Returns  {'closed'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- A shrinking command first: behind it a server at maxmemory takes the others.
redis.call('HDEL', calls, '')
for _, line in ipairs(ARGV) do redis.call('HSET', calls, line, 'closed') end
return { 'closed' }
