-- Moves the server on in shrinking the table of the candidates, when few are left of very many. To look for them there
-- would cost milliseconds: the table is as large as before, and while the server shrinks it one step of SSCAN visits up
-- to all of it. Decides nothing.
-- KEYS[1]  candidates  (set)  running ids silent since the snapshot
-- KEYS[2]  active      (set)  running ids heard from since the snapshot
-- Returns  {'shrunk'}; or {'enough'}: there is nothing to gain, and nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local left = redis.call('SCARD', candidates)
if left == 0 or left * FEW >= redis.call('SCARD', active) then return { 'enough' } end
-- About 10,000 buckets: ten for each look at a member that is not there. One that leaves makes the server begin with
-- the next smaller table.
local nobody = {}
for index = 1, 1000 do nobody[index] = '' end
redis.pcall('SADD', candidates, '')
redis.call('SREM', candidates, unpack(nobody))
return { 'shrunk' }
