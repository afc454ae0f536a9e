-- Extends a worker's locks: moves its jobs from `candidates` to `active`, and reports lost and cancelled ones.
-- Uses     held interval grace
-- KEYS[1]  locks       (hash)  id -> token
-- KEYS[2]  candidates  (set)   ids silent since the snapshot
-- KEYS[3]  active      (set)   ids heard from since the snapshot
-- KEYS[4]  cancelling  (hash)  id -> reason
-- KEYS[5]  meta        (hash)  epoch, interval, ask, when the options were declared
-- KEYS[6]  parked      (hash)  id -> fence, phase and silent since (ms) of a parked job
-- ARGV[1]  worker      (id)
-- ARGV[2]  ask         (the worker's interval, ms)
-- ARGV[3]  extend      (number of jobs to extend)
-- ARGV[4]  watch       (number of jobs with a silent handler: they are not extended)
-- ARGV[5]  jobs        (ids of both, then their fences; at most 500 jobs)
-- Returns  {'beaten', epoch, interval in force (ms), fences lost, fences with a pending cancel, when the options were
--          declared (ms; 0: the server has lost them), candidates before this call, active before this call}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local worker, ask, extend_count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local fences_at = 5 + extend_count + tonumber(ARGV[4])
local ids, fences = { unpack(ARGV, 5, fences_at - 1) }, { unpack(ARGV, fences_at, 2 * fences_at - 6) }

local epoch, interval, asked, declared, grace =
  unpack(redis.call('HMGET', meta, 'epoch', 'interval', 'ask', 'declaredAt', 'grace'))
local has_marks = grace_of(grace) and redis.call('HLEN', parked) > 0
-- Also checks the types: a set of another type refuses the call here.
local left, running = redis.call('SCARD', candidates), redis.call('SCARD', active)
local held, lost = held_by(locks, worker, ids, fences)
local reasons, wanted = cancel_reasons(cancelling, ids), {}
local extend, watch = {}, {}
for _, at in ipairs(held) do
  local group = at <= extend_count and extend or watch
  group[#group + 1] = ids[at]
  if reasons[at] then wanted[#wanted + 1] = fences[at] end
end
-- A shrinking command first, even if it removes nothing: only then a server at maxmemory accepts the others.
redis.call('SREM', candidates, '')
-- If `active` has as many jobs as there are locks, and none is a candidate, these jobs are there already. A job that is
-- missing in spite of that is put back in the next epoch, which begins with candidates.
local are_active = left == 0 and not has_marks and redis.call('HLEN', locks) == running
if #extend > 0 and not are_active then
  -- SREM comes last: if a right is missing, the jobs remain candidates.
  if has_marks then redis.call('HDEL', parked, unpack(extend)) end
  redis.call('SADD', active, unpack(extend))
  redis.call('SREM', candidates, unpack(extend))
end
if #watch > 0 then
  -- A lock whose id is in neither set would stay silent without being swept: put it back.
  local in_active, in_candidates = redis.call('SMISMEMBER', active, unpack(watch)),
    redis.call('SMISMEMBER', candidates, unpack(watch))
  for at, id in ipairs(watch) do
    if in_active[at] + in_candidates[at] == 0 then redis.call('SADD', active, id) end
  end
end
interval = ask_interval(meta, interval, asked, ask, worker)
return { 'beaten', tonumber(epoch) or 0, interval, lost, wanted, tonumber(declared) or 0, left, running }
