-- Reads the lane of one key, and who holds its jobs. Changes nothing.
-- KEYS[1]  turns     (zset)  keys by turn: see lib/lanes.lua
-- KEYS[2]  lanes     (zset)  entries of waiting jobs with keys
-- KEYS[3]  laneHeld  (zset)  entries of held jobs with keys
-- KEYS[4]  laneOwn   (hash)  key -> settings written at run time
-- KEYS[5]  locks     (hash)  id -> token
-- KEYS[6]  meta      (hash)  limits of each key
-- ARGV[1]  key       (of jobs)
-- ARGV[2]  holders   (of how many held jobs to read the holder, at most 200)
-- Returns  {'lane', score in `turns` ('' without one), its waiting jobs, its held jobs while keys have limits, its own
--          settings or '', `perKey` of `meta` or '', how many keys have a lower score, then id and token of held jobs}
-- Emits    nothing
-- Refuses  WRONGTYPE
local key = ARGV[1]
local from, to, score = '[' .. key .. '\0', '(' .. key .. '\1', redis.call('ZSCORE', turns, key)
local reply = { 'lane', score or '', redis.call('ZLEXCOUNT', lanes, from, to),
  redis.call('ZLEXCOUNT', lane_held, from, to), redis.call('HGET', lane_own, key) or '',
  redis.call('HGET', meta, 'perKey') or '', score and redis.call('ZCOUNT', turns, '-inf', '(' .. score) or 0 }
for _, entry in ipairs(redis.call('ZRANGE', lane_held, from, to, 'BYLEX', 'LIMIT', 0, ARGV[2])) do
  local id = string.sub(entry, #key + 2)
  reply[#reply + 1], reply[#reply + 2] = id, redis.call('HGET', locks, id) or ''
end
return reply
