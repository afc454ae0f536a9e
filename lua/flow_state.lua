-- Reads the place, the counts and the output of an instance. Changes nothing.
-- Uses     book flow
-- KEYS[1]  instances  (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by time of the last step, ms
-- KEYS[3]  paused     (zset)  instances by pause time, ms
-- KEYS[4]  completed  (zset)  instances by end time, ms
-- KEYS[5]  failed     (zset)  instances by end time, ms
-- KEYS[6]  cancelled  (zset)  instances by end time, ms
-- KEYS[7]  value      (hash)  instance/node -> value, or failure
-- KEYS[8]  shapes     (hash)  graphs, by digest
-- KEYS[9]  stopping   (hash)  instance -> how it will end, and why
-- KEYS[10] output     (hash)  instance -> its output
-- KEYS[11] error      (hash)  instance -> why it ended
-- ARGV[1]  instance   (id)
-- Returns  {'state', place, run, live nodes, open nodes, shape, first node that broke it or '-', its failure or '', the
--          output of a completed instance or why another one ended, or '', turn (how often it changed its place), 1 if
--          it is stopping else 0}. An output over 16 KiB is not copied: its size, a number, is returned instead
-- Returns  {'unknown'}: no such instance
-- Emits    nothing
-- Refuses  WRONGTYPE
local flow = ARGV[1]
local one = instance_of({}, keys, flow)
if not one then return { 'unknown' } end
local place = one.runs and 'running' or one.is_paused and 'paused' or ended_in(keys, one) or 'unknown'
local said = one.bad ~= '-' and redis.call('HGET', value, node_of(flow, one.bad)) or ''
local answer = redis.call('HGET', place == 'completed' and output or errors, flow) or ''
if place == 'completed' and #answer > NARROW_BYTES then answer = #answer end
return { 'state', place, one.run, one.live, one.out, one.digest, one.bad, said, answer, one.turn,
  one.stopping and 1 or 0 }
