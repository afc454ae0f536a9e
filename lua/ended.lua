-- Lists ended nodes whose workflow may not have recorded the end, oldest first. Removes entries of other jobs.
-- Uses     now
-- KEYS[1]  outbox     (zset)  ended nodes to report to their workflow, by end time, ms
-- KEYS[2]  completed  (zset)  ids by finish time, ms
-- KEYS[3]  failed     (zset)  ids by finish time, ms
-- KEYS[4]  cancelled  (zset)  ids by finish time, ms
-- KEYS[5]  result     (hash)  column
-- KEYS[6]  error      (hash)  column
-- ARGV[1]  grace      (ms: younger entries are still being reported)
-- ARGV[2]  limit      (jobs per call, at most 200)
-- Returns  {'ended', 1 if others remain else 0, three words per job: id, c | f | x (completed, failed, cancelled),
--          value or failure}: after the first job at most 512 KiB. One that would exceed 16 KiB in all is not copied:
--          its size, a number, is returned instead
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local grace, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local _, now_ms = now_us()
local due = redis.call('ZRANGEBYSCORE', outbox, '-inf', string.format('%d', now_ms - grace), 'LIMIT', 0, limit)
-- Also entries over a minute ahead: the server's clock went back.
local ahead = redis.call('ZRANGEBYSCORE', outbox, string.format('(%d', now_ms + 60000), '+inf', 'LIMIT', 0, limit)
for _, id in ipairs(ahead) do due[#due + 1] = id end
local reply, bytes, here, gone = { 'ended', #due >= limit and 1 or 0 }, 0, 0, {}
for _, id in ipairs(due) do
  local how = redis.call('ZSCORE', completed, id) and 'c' or redis.call('ZSCORE', failed, id) and 'f'
    or redis.call('ZSCORE', cancelled, id) and 'x'
  if how then
    local column = how == 'c' and result or errors
    local said = redis.call('HSTRLEN', column, id)
    bytes = bytes + said
    if bytes > LARGE and #reply > 2 then
      reply[2] = 1
      break
    end
    if here + said <= NARROW_BYTES then
      here, said = here + said, redis.call('HGET', column, id) or ''
    end
    for _, word in ipairs({ id, how, said }) do reply[#reply + 1] = word end
  else
    -- The job was removed, or runs again.
    gone[#gone + 1] = id
  end
end
if #gone > 0 then redis.call('ZREM', outbox, unpack(gone)) end
return reply
