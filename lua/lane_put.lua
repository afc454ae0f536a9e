-- Changes the settings of a key: its limits, its weight, or whether it is paused. If it was full, or if it rested and
-- gets other limits, the next claim looks at it again.
-- Uses     now shrink_first wake lanes own_settings
-- KEYS[1]  meta     (hash)  virtual time
-- KEYS[2]  laneOwn  (hash)  key -> settings written at run time: see lib/own_settings.lua
-- KEYS[3]  turns    (zset)  keys by turn: see lib/lanes.lua
-- KEYS[4]  wake     (zset)  marker for idle workers
-- ARGV[1]  key      (of jobs)
-- ARGV[2]  what     (limits, weight, pause, resume or reset)
-- ARGV[3]  value    (limits: three words as `perKey` of `meta`, or '- - -' for those of the task; weight: a number;
--                   else '')
-- ARGV[4]  by       (who asks)
-- Returns  {'put', 1 if the key was paused before, else 0}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local TASKS = '- - -'
local key, what, value, by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local _, now_ms = now_us()
local before, own_limits = own_settings(lane_own, { key, '' })[key] or { weight = 1 }, TASKS
if before.most then own_limits = before.most .. ' ' .. before.rate .. ' ' .. before.window end
local score = tonumber(redis.call('ZSCORE', turns, key) or 0)
redis.call('HLEN', lane_own)
redis.call('HLEN', meta)

local weight, paused = before.weight, before.paused
if what == 'limits' then
  own_limits = value
elseif what == 'weight' then
  weight = tonumber(value)
elseif what == 'pause' then
  paused = paused or string.format('%d', now_ms)
elseif what == 'resume' then
  paused = nil
else
  own_limits, weight, paused = TASKS, 1, nil
end
shrink_first('HDEL', lane_own)
if own_limits == TASKS and weight == 1 and not paused then
  redis.call('HDEL', lane_own, key)
else
  redis.call('HSET', lane_own, key, string.format('%s %d %s %s', own_limits, weight, paused or '0', by))
end

-- Its rate is in `laneStarts`, so the next claim finds whether it may start jobs. Other limits end a rest, whatever its
-- reason was.
if score >= FULL or score >= RESTING and (what == 'limits' or what == 'reset') then
  redis.call('ZADD', turns, turn_now(meta), key)
  ring_wake(wake)
end
return { 'put', before.paused and 1 or 0 }
