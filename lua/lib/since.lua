-- Writes since when the jobs stand where they are now, a list or `delayed`. Of a job that still stands where its
-- dispatch put it the time of that tells.
local function stand_since(waiting_since, ids, now_ms)
  local fields, now = {}, string.format('%d', now_ms)
  for index, id in ipairs(ids) do fields[2 * index - 1], fields[2 * index] = id, now end
  redis.call('HSET', waiting_since, unpack(fields))
end
