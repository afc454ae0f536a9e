-- Writes the presence of a worker, also on a server at maxmemory. `bootedAt` is the server's clock minus the boot clock
-- of the worker's host. The smallest value is kept, since a late call only adds to it.
-- Uses     now shrink_first
-- KEYS[1]  worker  (hash)  presence of the worker
-- ARGV[1]  fields  (pairs: name, value; `bootClock` is in ms)
-- Returns  {'announced'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local _, now_ms = now_us()
local fields = { 'lastSeenAt', string.format('%d', now_ms), unpack(ARGV) }
local smallest = tonumber(redis.call('HGET', worker, 'bootedAt'))
for at = 1, #ARGV, 2 do
  if ARGV[at] == 'bootClock' then
    local booted_at = math.min(now_ms - ARGV[at + 1], smallest or math.huge)
    fields[#fields + 1], fields[#fields + 2] = 'bootedAt', string.format('%d', booted_at)
  end
end
shrink_first('HDEL', worker)
redis.call('HSET', worker, unpack(fields))
return { 'announced' }
