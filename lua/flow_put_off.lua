-- Postpones outbox entries that could not be carried out by some 5 s, so that they do not block others.
-- Uses     now shrink_first types
-- KEYS[1]  outbox   (zset)  pending steps, by due time, ms
-- KEYS[2]  meta     (hash)  putOff, untold: first and last failure to carry out entries, or to report jobs, ms
-- ARGV[1]  entries  (of the outbox, at most 200; none: ended jobs could not be reported to the workflow)
-- Returns  {'put'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- Workflow runners take entries that are 10 s old.
local TAKEN, AGAIN, OVER = 10000, 5000, 60000
local _, now_ms = now_us()
expect_types({}, {}, { meta }, { outbox })
local field = #ARGV > 0 and 'putOff' or 'untold'
local since, last = string.match(redis.call('HGET', meta, field) or '', '^(%d+) (%d+)$')
if not since or now_ms - last > OVER or since + 0 > now_ms then since = string.format('%d', now_ms) end
local marks, score = {}, string.format('%d', now_ms - TAKEN + AGAIN)
for _, entry in ipairs(ARGV) do marks[#marks + 1], marks[#marks + 2] = score, entry end
shrink_first('ZREM', outbox)
if #marks > 0 then redis.call('ZADD', outbox, 'XX', unpack(marks)) end
redis.call('HSET', meta, field, since .. ' ' .. string.format('%d', now_ms))
return { 'put' }
