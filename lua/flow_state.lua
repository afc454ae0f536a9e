-- Where an instance of a workflow stands, and what it answers.
-- KEYS[1]  head       (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by when they were moved last, ms
-- KEYS[3]  paused     (zset)  instances by when they were paused, ms
-- KEYS[4]  completed  (zset)  instances by when they ended, ms
-- KEYS[5]  failed     (zset)  instances by when they ended, ms
-- KEYS[6]  cancelled  (zset)  instances by when they ended, ms
-- KEYS[7]  value      (hash)  instance/node -> value, or failure
-- KEYS[8]  shapes     (hash)  records of graphs
-- KEYS[9]  stopping   (hash)  instance -> how it is to end, and why
-- KEYS[10] output     (hash)  instance -> what it answers
-- KEYS[11] error      (hash)  instance -> why it ended so
-- ARGV[1]  instance   (id)
-- Returns  {'state', place, run, live nodes, open nodes, shape, first node that broke it or '-', its value or '', what
--          it answers, or, of one that did not complete, why, or '', how often it changed its place, 1 if it stops,
--          else 0}
-- Returns  {'unknown'}
-- Emits    nothing
-- Refuses  WRONGTYPE
local flow = ARGV[1]
local keys = { head = head, running = running, paused = paused, shapes = shapes, stopping = stopping,
  completed = completed, failed = failed, cancelled = cancelled }
local one = instance_of({}, keys, flow)
if not one then return { 'unknown' } end
local place = one.runs and 'running' or one.is_paused and 'paused' or ended_in(keys, one) or 'unknown'
local said = one.bad ~= '-' and redis.call('HGET', value, node_of(flow, one.bad)) or ''
local answer = redis.call('HGET', place == 'completed' and output or errors, flow) or ''
return { 'state', place, one.run, one.live, one.out, one.digest, one.bad, said, answer, one.turn,
  one.stopping and 1 or 0 }
