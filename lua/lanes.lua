-- Reads the keys of a task whose jobs wait: those in one state, and how many are in each. Changes nothing.
-- Uses     lanes
-- KEYS[1]  turns     (zset)  keys by turn: see lib/lanes.lua
-- KEYS[2]  lanes     (zset)  entries of waiting jobs with keys
-- KEYS[3]  laneHeld  (zset)  entries of held jobs with keys
-- ARGV[1]  state     (ready, resting or full)
-- ARGV[2]  count     (how many keys, at most 1,000: those that are next, rest soonest over, or are full longest first)
-- Returns  {'lanes', ready keys, resting keys, full keys, per key of the state four words: key, score in `turns`, its
--          waiting jobs, its held jobs while keys have limits}
-- Emits    nothing
-- Refuses  WRONGTYPE
local ranges = { ready = { '-inf', '(' .. RESTING }, resting = { RESTING, '(' .. FULL }, full = { FULL, '+inf' } }
local reply = { 'lanes' }
for at, state in ipairs({ 'ready', 'resting', 'full' }) do
  reply[at + 1] = redis.call('ZCOUNT', turns, unpack(ranges[state]))
end
local least, most = unpack(ranges[ARGV[1]])
local found = redis.call('ZRANGE', turns, least, most, 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
for at = 1, #found, 2 do
  local key, last = found[at], #reply
  local from, to = '[' .. key .. '\0', '(' .. key .. '\1'
  reply[last + 1], reply[last + 2] = key, found[at + 1]
  reply[last + 3] = tostring(redis.call('ZLEXCOUNT', lanes, from, to))
  reply[last + 4] = tostring(redis.call('ZLEXCOUNT', lane_held, from, to))
end
return reply
