-- Asks whether the handlers of nodes may begin.
-- KEYS[1]  head       (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running    (zset)  instances by when they were moved last, ms
-- KEYS[3]  paused     (zset)  instances by when they were paused, ms
-- KEYS[4]  completed  (zset)  instances by when they ended, ms
-- KEYS[5]  failed     (zset)  instances by when they ended, ms
-- KEYS[6]  cancelled  (zset)  instances by when they ended, ms
-- KEYS[7]  nodes      (hash)  instance/node -> its state
-- KEYS[8]  value      (hash)  instance/node -> value, or failure
-- KEYS[9]  shapes     (hash)  records of graphs
-- KEYS[10] stopping   (hash)  instance -> how it is to end, and why
-- KEYS[11] outbox     (zset)  what is to be done, by from when on, ms
-- KEYS[12] output     (hash)  instance -> what it answers
-- KEYS[13] error      (hash)  instance -> why it ended so
-- ARGV[1]  nodes      (triples instance, node, run; at most 200)
-- Returns  {'entered', go or stale for each}: one of an instance that stops is cancelled, and one that is not open in
--          this run has no business any more
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local keys = { head = head, running = running, paused = paused, completed = completed, failed = failed,
  cancelled = cancelled, nodes = nodes, value = value, shapes = shapes, stopping = stopping, outbox = outbox,
  output = output, error = errors }
local known, reply, stopped, names = {}, { 'entered' }, {}, {}
for at = 1, #ARGV, 3 do names[#names + 1] = node_of(ARGV[at], ARGV[at + 1]) end
local states = redis.call('HMGET', nodes, unpack(names))
for place, state in ipairs(states) do
  local one, run = instance_of(known, keys, ARGV[3 * place - 2]), ARGV[3 * place]
  local is_open = goes_on(one, run) and state and string.sub(state, 1, 1) == 'o'
  reply[place + 1] = is_open and not one.stopping and 'go' or 'stale'
  if is_open and one.stopping then stopped[#stopped + 1] = { one, names[place], run } end
end
if #stopped == 0 then return reply end
expect_types({}, {}, { value, output, errors }, { completed, failed, cancelled, outbox })
local _, now_ms = now_us()
local seen = {}
redis.call('HDEL', output, '')
for _, found in ipairs(stopped) do
  local one, name, run = unpack(found)
  if not seen[name] then
    seen[name] = true
    redis.call('HSET', nodes, name, 'x')
    redis.call('ZREM', outbox, 's ' .. name .. '/' .. run)
    one.live, one.out = one.live - 1, one.out - 1
  end
end
for _, found in ipairs(stopped) do
  local one = found[1]
  if not seen[one] then
    seen[one] = true
    end_or_keep(keys, one, now_ms)
  end
end
return reply
