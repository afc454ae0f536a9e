-- Writes a task's options as the scripts need them: when a worker starts, and again if the server has lost them.
-- Uses     now
-- KEYS[1]  meta     (hash)  wire version, partitions, stamp, options; when first declared, when last lost
-- KEYS[2]  parked   (hash)  id -> fence, phase and silent since (ms) of a parked job
-- ARGV[1]  wire     (version of the caller)
-- ARGV[2]  stamp    (server time of the worker's start, ms; '' at the start itself, which returns one)
-- ARGV[3]  worker   (id of the caller)
-- ARGV[4]  options  (pairs: name, value; without `partitions` the task has one)
-- Returns  {'declared', stamp, list of changes: name, old value, new value}
-- Returns  {'kept', stamp in force}: a later start has declared the options; nothing is written
-- Emits    nothing
-- Refuses  NEWERWIRE: the task's data was written by a newer version
--          OTHERPARTITIONS: the task has another number of partitions than the caller assumes
--          WRONGTYPE
local wire, stamp, worker = ARGV[1], tonumber(ARGV[2]), ARGV[3]
redis.call('HLEN', parked)
local written = redis.call('HMGET', meta, 'wire', 'declaredAt', 'partitions')
if tonumber(written[1] or 0) > tonumber(wire) then
  return redis.error_reply('NEWERWIRE the task was written by wire version ' .. written[1])
end
local declared = tonumber(written[2]) or 0
if stamp and declared >= stamp then return { 'kept', declared } end
-- The newest start wins, even if the server's clock went back.
local _, now_ms = now_us()
stamp = stamp or math.max(now_ms, declared + 1)
local parts = '1'
for at = 4, #ARGV, 2 do
  if ARGV[at] == 'partitions' then parts = ARGV[at + 1] end
end
-- After a loss of data the number of the running workers applies.
if written[1] and (written[3] or '1') ~= parts and (written[2] or ARGV[2] == '') then
  return redis.error_reply('OTHERPARTITIONS the task has ' .. (written[3] or 1) .. ' partitions')
end
-- A worker has declared the task before, and the server has lost that.
local is_lost, now = ARGV[2] ~= '' and not written[2], string.format('%d', now_ms)
local changed, fields = {}, { 'wire', wire, 'declaredAt', string.format('%d', stamp), 'declaredBy', worker }
for at = 4, #ARGV, 2 do
  local old = redis.call('HGET', meta, ARGV[at])
  -- Few tasks have keys, and each further field of `meta` makes the others slower to find.
  local is_unused = ARGV[at + 1] == '' and not old and (ARGV[at] == 'key' or ARGV[at] == 'perKey')
  if old ~= ARGV[at + 1] and not is_unused then
    -- Heartbeats remove marks only while `grace` is set.
    if ARGV[at] == 'grace' and ((old or '') == '' or ARGV[at + 1] == '') and (old or '') ~= ARGV[at + 1] then
      redis.call('DEL', parked)
    end
    -- The next claim finds whether the new limits allow it. A rest that a handler asked for stays.
    if ARGV[at] == 'limits' and not string.find(redis.call('HGET', meta, 'full') or '', ' handler$') then
      redis.call('HDEL', meta, 'full')
    end
    fields[#fields + 1], fields[#fields + 2] = ARGV[at], ARGV[at + 1]
    if old then
      local last = #changed
      changed[last + 1], changed[last + 2], changed[last + 3] = ARGV[at], old, ARGV[at + 1]
    end
  end
end
-- A shrinking command first: a worker may start on a server at maxmemory, to drain it.
redis.call('HDEL', meta, parts == '1' and 'partitions' or '')
if not written[2] then fields[#fields + 1], fields[#fields + 2] = 'bornAt', now end
if is_lost then fields[#fields + 1], fields[#fields + 2] = 'lostAt', now end
redis.call('HSET', meta, unpack(fields))
return { 'declared', stamp, changed }
