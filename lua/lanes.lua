-- Reads the keys of a task whose jobs wait: those in one state, and how many are in each. Or those with settings of
-- their own. Changes nothing.
-- Uses     lanes
-- KEYS[1]  turns     (zset)  keys by turn: see lib/lanes.lua
-- KEYS[2]  lanes     (zset)  entries of waiting jobs with keys
-- KEYS[3]  laneHeld  (zset)  entries of held jobs with keys
-- KEYS[4]  laneOwn   (hash)  key -> settings written at run time
-- KEYS[5]  meta      (hash)  limits of each key
-- ARGV[1]  state     (ready, resting or full; own: the keys with settings)
-- ARGV[2]  count     (how many keys, at most 1,000: those that are next, rest soonest over, or are full longest first)
-- Returns  {'lanes', ready keys, resting keys, full keys, `perKey` of `meta` or '', then five words per key: key, score
--          in `turns` or '', its waiting jobs, its held jobs while it has limits, its own settings or ''}
-- Emits    nothing
-- Refuses  WRONGTYPE
local ranges = { ready = { '-inf', '(' .. RESTING }, resting = { RESTING, '(' .. FULL }, full = { FULL, '+inf' } }
local reply = { 'lanes' }
for at, state in ipairs({ 'ready', 'resting', 'full' }) do
  reply[at + 1] = redis.call('ZCOUNT', turns, unpack(ranges[state]))
end
reply[5] = redis.call('HGET', meta, 'perKey') or ''
local found, count = {}, tonumber(ARGV[2])
if ARGV[1] == 'own' then
  local cursor, calls = '0', 0
  while calls < 10 and #found < 2 * count and (calls == 0 or cursor ~= '0') do
    local scanned = redis.call('HSCAN', lane_own, cursor, 'COUNT', count)
    cursor, calls = scanned[1], calls + 1
    for at = 1, math.min(#scanned[2], 2 * count - #found), 2 do
      found[#found + 1] = scanned[2][at]
      found[#found + 1] = redis.call('ZSCORE', turns, scanned[2][at]) or ''
    end
  end
else
  local least, most = unpack(ranges[ARGV[1]])
  found = redis.call('ZRANGE', turns, least, most, 'BYSCORE', 'LIMIT', 0, count, 'WITHSCORES')
end
for at = 1, #found, 2 do
  local key, last = found[at], #reply
  local from, to = '[' .. key .. '\0', '(' .. key .. '\1'
  reply[last + 1], reply[last + 2] = key, found[at + 1]
  reply[last + 3] = tostring(redis.call('ZLEXCOUNT', lanes, from, to))
  reply[last + 4] = tostring(redis.call('ZLEXCOUNT', lane_held, from, to))
  reply[last + 5] = redis.call('HGET', lane_own, key) or ''
end
return reply
