-- Records since when the jobs are in their list or in `delayed`. A job that is still where its dispatch put it has the
-- dispatch time instead.
local function record_since(enqueued_at, ids, now_ms)
  local fields, now = {}, string.format('%d', now_ms)
  for index, id in ipairs(ids) do fields[2 * index - 1], fields[2 * index] = id, now end
  redis.call('HSET', enqueued_at, unpack(fields))
end
