-- Writes a task's options, as the scripts need them, when a worker starts: the newest start wins.
-- KEYS[1]  meta     (hash)  wire version and options
-- ARGV[1]  wire     (version of the caller)
-- ARGV[2]  options  (pairs: name, value)
-- Returns  {'declared', what changed: name, old value, new value}
-- Emits    nothing
-- Refuses  NEWERWIRE: the task's data was written by a newer version
local meta, wire = KEYS[1], ARGV[1]

local written = redis.call('HGET', meta, 'wire')
if tonumber(written or 0) > tonumber(wire) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. written)
end
local changed, fields = {}, { 'wire', wire }
for i = 2, #ARGV, 2 do
  local old = redis.call('HGET', meta, ARGV[i])
  if old ~= ARGV[i + 1] then
    fields[#fields + 1] = ARGV[i]
    fields[#fields + 1] = ARGV[i + 1]
    if old then
      local at = #changed
      changed[at + 1], changed[at + 2], changed[at + 3] = ARGV[i], old, ARGV[i + 1]
    end
  end
end
if written ~= wire or #fields > 2 then
  -- A shrinking command first: a worker may start on a server at maxmemory, to drain it.
  redis.call('HDEL', meta, '')
  redis.call('HSET', meta, unpack(fields))
end
return { 'declared', changed }
