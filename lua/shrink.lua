-- Makes the server continue to shrink the hash table of `candidates`, when few of very many candidates are left. Until
-- the table is small, one step of SSCAN may visit all of it, which costs milliseconds. Decides nothing.
-- KEYS[1]  candidates  (set)  running ids silent since the snapshot
-- KEYS[2]  active      (set)  running ids heard from since the snapshot
-- Returns  {'shrunk'}; or {'enough'}: there is nothing to gain, and nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local left = redis.call('SCARD', candidates)
if left == 0 or left * FEW >= redis.call('SCARD', active) then return { 'enough' } end
-- Moves about 10,000 buckets: each lookup of a missing member moves ten. Removing a member makes the server begin with
-- the next smaller table.
local missing = {}
for index = 1, 1000 do missing[index] = '' end
redis.pcall('SADD', candidates, '')
redis.call('SREM', candidates, unpack(missing))
return { 'shrunk' }
