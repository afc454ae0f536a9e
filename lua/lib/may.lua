-- Refuses the call before anything is written where our user may not run this command on each of the keys, as far as
-- the server can tell (Redis 7.0 and later): one that is refused in its middle leaves jobs where nobody finds them.
local function must_be_allowed(command, keys, ...)
  if not redis.acl_check_cmd then return end
  for _, key in ipairs(keys) do
    if not redis.acl_check_cmd(command, key, ...) then
      error(redis.error_reply('NOPERM our user may not run ' .. command .. ' on ' .. key))
    end
  end
end

-- The same of several commands, words with spaces between.
local function must_be_allowed_all(commands, keys)
  for command in string.gmatch(commands, '%u+') do
    -- Whatever more EXISTS is given would be keys, too.
    if command == 'EXISTS' then
      must_be_allowed(command, keys)
    else
      must_be_allowed(command, keys, 'x', 'x', 'x')
    end
  end
end

-- The same of what is written when jobs leave the place where they are.
local function must_be_allowed_to_move(places)
  must_be_allowed('SREM', { places.active, places.candidates }, 'x')
  must_be_allowed('HDEL', { places.locks, places.cancelling, places.claimed }, 'x')
  must_be_allowed('HINCRBY', { places.stalled_count, places.meta }, 'x', 1)
  must_be_allowed('HSET', { places.errors, places.attempt, places.waiting_since, places.recovery, places.outcome,
    places.meta }, 'x', 'x')
  must_be_allowed('LPUSH', places.lists, 'x')
  must_be_allowed('ZADD', { places.completed, places.failed, places.cancelled, places.delayed, places.finalizing }, 0,
    'x')
  must_be_allowed('XADD', { places.events, places.stalls }, '*', 'x', 'x')
end
