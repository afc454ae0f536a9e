-- Puts entries of an outbox off that could not be carried out, so that they hold up no others: for some 5 s.
-- KEYS[1]  outbox   (zset)  what is to be done, by from when on, ms
-- KEYS[2]  meta     (hash)  since when, and when last, entries were put off, or jobs could not be told of, ms
-- ARGV[1]  entries  (of the outbox; at most 200; none where the workflow could not be told of ended jobs)
-- Returns  {'put'}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
-- What is 10 s old is taken.
local TAKEN, AGAIN, OVER = 10000, 5000, 60000
local _, now_ms = now_us()
expect_types({}, {}, { meta }, { outbox })
local field = #ARGV > 0 and 'putOff' or 'untold'
local since, last = string.match(redis.call('HGET', meta, field) or '', '^(%d+) (%d+)$')
if not since or now_ms - last > OVER or since + 0 > now_ms then since = string.format('%d', now_ms) end
local marks, score = {}, string.format('%d', now_ms - TAKEN + AGAIN)
for _, entry in ipairs(ARGV) do marks[#marks + 1], marks[#marks + 2] = score, entry end
-- A shrinking command first: behind it a server at maxmemory takes the others.
redis.call('ZREM', outbox, '')
if #marks > 0 then redis.call('ZADD', outbox, 'XX', unpack(marks)) end
redis.call('HSET', meta, field, since .. ' ' .. string.format('%d', now_ms))
return { 'put' }
