-- Whether jobs of the task may begin without a slot: after a crash such a job runs once more than `max_count` allows.
local function allows_early(meta)
  local max, mode, heartbeat = unpack(redis.call('HMGET', meta, 'maxCount', 'onCrash', 'heartbeat'))
  return (tonumber(max) or 1) > 0 and (mode or 'recover') == 'recover' and heartbeat ~= 'manual'
end
