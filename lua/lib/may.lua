-- Refuses the call before the first write if our user may not run this command on each of the keys, as far as the
-- server can tell (Redis 7.0 and later). A script that is refused in the middle would leave jobs in no place.
local function must_be_allowed(command, keys, ...)
  if not redis.acl_check_cmd then return end
  for _, key in ipairs(keys) do
    if not redis.acl_check_cmd(command, key, ...) then
      error(redis.error_reply('NOPERM our user may not run ' .. command .. ' on ' .. key))
    end
  end
end

-- How many words follow the key where three are too many. Newer servers do not check a call that they would not run.
local WORDS = { EXISTS = 0, SCARD = 0, HEXISTS = 1, HGET = 1, LINDEX = 1, HINCRBY = 2, HSETNX = 2, LRANGE = 2,
  LTRIM = 2 }

-- The same for several commands, separated by spaces.
local function must_be_allowed_all(commands, keys)
  for command in string.gmatch(commands, '%u+') do
    must_be_allowed(command, keys, unpack({ 'x', 'x', 'x' }, 1, WORDS[command]))
  end
end

-- Checks the commands that run when waiting jobs leave their lists and lose their columns.
local function must_be_allowed_to_leave(lists, columns, tombstones, meta, locks, elsewhere)
  must_be_allowed_all('LINDEX LRANGE LTRIM', lists)
  must_be_allowed_all('HDEL EXISTS HEXISTS', columns)
  must_be_allowed_all('HSET HDEL HMGET HEXISTS EXISTS', { tombstones })
  must_be_allowed_all('HSET HGET HINCRBY', { meta })
  must_be_allowed_all('HMGET', { locks })
  must_be_allowed_all('ZMSCORE', elsewhere)
end

-- Checks the commands that run when jobs are repaired.
local function must_be_allowed_to_mend(lists, sets, hashes, scored)
  must_be_allowed_all('LPUSH', lists)
  must_be_allowed_all('SADD SREM', sets)
  must_be_allowed_all('HSET HDEL HGET HMGET EXISTS', hashes)
  must_be_allowed_all('ZADD ZMSCORE ZREM ZRANGE EXISTS', scored)
end

-- Checks the commands that run when held jobs are taken from their workers.
local function must_be_allowed_to_move(places)
  must_be_allowed_all('SREM', { places.active, places.candidates })
  must_be_allowed_all('HDEL', { places.locks, places.cancelling, places.claimed, places.early })
  must_be_allowed_all('HDEL EXISTS', places.columns)
  must_be_allowed_all('HINCRBY', { places.stalled_count, places.meta })
  must_be_allowed_all('HSET', { places.errors, places.attempt, places.enqueued_at, places.recovery, places.outcome,
    places.result, places.meta })
  must_be_allowed_all('HGET HMGET', { places.errors, places.meta, places.outcome, places.priority,
    places.lane_of })
  must_be_allowed_all('LPUSH', places.lists)
  must_be_allowed_all('ZADD', { places.completed, places.failed, places.cancelled, places.delayed, places.finalizing,
    places.outbox, places.wake })
  must_be_allowed_all('ZREM', { places.finalizing })
  must_be_allowed_all('ZADD ZMSCORE ZREM ZRANGE EXISTS', { places.turns, places.lane_held })
  must_be_allowed('XADD', { places.events, places.stalls }, '*', 'x', 'x')
end
