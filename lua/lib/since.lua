-- Records since when the jobs are in their list or `delayed`. For where a dispatch put a job, its dispatch time counts.
local function record_since(enqueued_at, ids, now_ms)
  local fields, now = {}, string.format('%d', now_ms)
  for index, id in ipairs(ids) do fields[2 * index - 1], fields[2 * index] = id, now end
  redis.call('HSET', enqueued_at, unpack(fields))
end
