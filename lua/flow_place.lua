-- Pauses instances that are in no place, since the server lost it, for a person to decide. Those that were stopping run
-- again, and stop; children run again with their parents.
-- Uses     now shrink_first types
-- KEYS[1]  instances  (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by time of the last step, ms
-- KEYS[3]  paused     (zset)  instances by pause time, ms
-- KEYS[4]  completed  (zset)  instances by end time, ms
-- KEYS[5]  failed     (zset)  instances by end time, ms
-- KEYS[6]  cancelled  (zset)  instances by end time, ms
-- KEYS[7]  stopping   (hash)  instance -> how it will end, and why
-- KEYS[8]  children   (zset)  instances that run as nodes of others, all with the score 0
-- ARGV[1]  instances  (ids, at most 200)
-- Returns  {'placed', how many}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local _, now_ms = now_us()
expect_types({}, {}, { instances, stopping }, { running, paused, completed, failed, cancelled, children })
local lines, stops = redis.call('HMGET', instances, unpack(ARGV)), redis.call('HMGET', stopping, unpack(ARGV))
local is_placed, now, count = {}, string.format('%d', now_ms), 0
for _, place in ipairs({ running, paused, completed, failed, cancelled }) do
  for at, score in ipairs(redis.call('ZMSCORE', place, unpack(ARGV))) do is_placed[at] = is_placed[at] or score end
end
shrink_first('ZREM', paused)
for at, flow in ipairs(ARGV) do
  local is_child, line = string.find(flow, '/', 1, true), lines[at]
  local is_to_end = stops[at] and (string.find(stops[at], '^cancelled ') or string.find(stops[at], '^failed '))
  if line and is_child then redis.call('ZADD', children, 0, flow) end
  -- A child that has ended is in no place.
  if line and not is_placed[at] and not (is_child and string.match(line, ' [cfx]$')) then
    if is_child or is_to_end then redis.call('ZADD', running, now, flow) else redis.call('ZADD', paused, now, flow) end
    count = count + 1
  end
end
return { 'placed', count }
