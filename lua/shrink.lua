-- Makes the server continue to shrink the table of `candidates`, when few of very many are left. The table is still
-- large: while the server shrinks it, one step of SSCAN may visit all of it, which costs milliseconds. Decides nothing.
-- KEYS[1]  candidates  (set)  running ids silent since the snapshot
-- KEYS[2]  active      (set)  running ids heard from since the snapshot
-- Returns  {'shrunk'}; or {'enough'}: there is nothing to gain, and nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local left = redis.call('SCARD', candidates)
if left == 0 or left * FEW >= redis.call('SCARD', active) then return { 'enough' } end
-- About 10,000 buckets: each look at a missing member moves ten. Removing a member makes the server begin with the next
-- smaller table.
local nobody = {}
for index = 1, 1000 do nobody[index] = '' end
redis.pcall('SADD', candidates, '')
redis.call('SREM', candidates, unpack(nobody))
return { 'shrunk' }
