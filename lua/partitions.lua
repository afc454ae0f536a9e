-- Sets the number of partitions of a task for which nothing was declared, dispatched or scheduled yet.
-- KEYS[1]  meta         (hash)    wire version, partitions, options, totals, pause; of the first partition
-- KEYS[2]  payload      (hash)    column
-- ARGV[1]  wire         (version of the caller)
-- ARGV[2]  partitions   (number wanted)
-- Returns  {'partitions', number in force}
-- Emits    nothing
-- Refuses  NEWERWIRE: the task's data was written by a newer version
--          WRONGTYPE
local written = redis.call('HMGET', meta, 'wire', 'partitions', 'declaredAt', 'in', 'paused')
if tonumber(written[1] or 0) > tonumber(ARGV[1]) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. written[1])
end
if written[2] then return { 'partitions', tonumber(written[2]) } end
-- Existing data was written for one partition, and an existing pause would not hold for the others.
local has_data = written[1] or written[3] or written[4] or written[5] or redis.call('HLEN', payload) > 0
if has_data then return { 'partitions', 1 } end
local count = tonumber(ARGV[2])
if count > 1 then redis.call('HSET', meta, 'partitions', count, 'wire', ARGV[1]) end
return { 'partitions', count }
