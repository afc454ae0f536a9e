-- Lists some of the fields or members of a key, without values. Changes nothing.
-- KEYS[1]  place    (hash)    or a set or sorted set: the key to list
-- ARGV[1]  cursor   (of the call before; 0 to begin)
-- ARGV[2]  count    (how many buckets to look at)
-- Returns  {'scanned', cursor (0: the end), names}
-- Emits    nothing
-- Refuses  nothing: for a key of another type no names are returned
local kind, cursor, count = redis.call('TYPE', place).ok, ARGV[1], ARGV[2]
local commands = { hash = 'HSCAN', set = 'SSCAN', zset = 'ZSCAN' }
if not commands[kind] then return { 'scanned', '0', {} } end
local scanned = redis.call(commands[kind], place, cursor, 'COUNT', count)
local names = {}
for at = 1, #scanned[2], kind == 'set' and 1 or 2 do names[#names + 1] = scanned[2][at] end
return { 'scanned', scanned[1], names }
