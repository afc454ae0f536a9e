-- Puts instances that stand in no place among those that are paused, for a person to decide; the server lost where they
-- stood. Those that run as nodes of others go on.
-- KEYS[1]  head       (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by when they were moved last, ms
-- KEYS[3]  paused     (zset)  instances by when they were paused, ms
-- KEYS[4]  completed  (zset)  instances by when they ended, ms
-- KEYS[5]  failed     (zset)  instances by when they ended, ms
-- KEYS[6]  cancelled  (zset)  instances by when they ended, ms
-- ARGV[1]  instances  (at most 200)
-- Returns  {'placed', how many}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local _, now_ms = now_us()
expect_types({}, {}, { head }, { running, paused, completed, failed, cancelled })
local lines, is_placed, count = redis.call('HMGET', head, unpack(ARGV)), {}, 0
for _, place in ipairs({ running, paused, completed, failed, cancelled }) do
  for at, score in ipairs(redis.call('ZMSCORE', place, unpack(ARGV))) do is_placed[at] = is_placed[at] or score end
end
-- A shrinking command first: behind it a server at maxmemory takes the others.
redis.call('ZREM', paused, '')
for at, flow in ipairs(ARGV) do
  local is_child, line = string.find(flow, '/', 1, true), lines[at]
  -- A child that has ended stands in no place.
  if line and not is_placed[at] and not (is_child and string.match(line, ' [cfx]$')) then
    local now = string.format('%d', now_ms)
    if is_child then redis.call('ZADD', running, now, flow) else redis.call('ZADD', paused, now, flow) end
    count = count + 1
  end
end
return { 'placed', count }
