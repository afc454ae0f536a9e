-- Sends open nodes again whose jobs the server has lost.
-- Uses     now shrink_first types book flow flow_reply
-- KEYS[1]  instances (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[2]  running   (zset)  instances by time of the last step, ms
-- KEYS[3]  paused    (zset)  instances by pause time, ms
-- KEYS[4]  nodes     (hash)  instance/node -> its state
-- KEYS[5]  input     (hash)  instance/node -> payload
-- KEYS[6]  value     (hash)  instance/node -> value, or failure
-- KEYS[7]  shapes    (hash)  graphs, by digest
-- KEYS[8]  stopping  (hash)  instance -> how it will end, and why
-- KEYS[9]  outbox    (zset)  pending steps, by due time, ms
-- KEYS[10] grow      (hash)  instance/node -> graph that its job returned
-- ARGV[1]  nodes     (triples instance, node, run; at most 200)
-- Returns  {'resent', number of nodes not sent again, those as instance/node/run (the instance stops, or they were sent
--          three times), the words of add_opened}
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
expect_types({}, {}, { nodes, input, value, shapes, stopping, grow }, { running, paused, outbox })
local known, sends, lost, _, now_ms = {}, {}, {}, now_us()
shrink_first('ZREM', outbox)
for at = 1, #ARGV, 3 do
  local one, name, run = instance_of(known, keys, ARGV[at]), node_of(ARGV[at], ARGV[at + 1]), ARGV[at + 2]
  local state = goes_on(one, run) and redis.call('HGET', nodes, name) or ''
  local kind, times = string.match(state, '^([og])(%d*)$')
  -- A node that is still to be sent is not lost.
  if times and not redis.call('ZSCORE', outbox, 's ' .. name .. '/' .. run) then
    times = (tonumber(times) or 0) + 1
    local send = not one.stopping and times <= 2 and sendable(keys, one, ARGV[at + 1], state)
    if send then
      redis.call('HSET', nodes, name, kind .. times)
      redis.call('ZADD', outbox, string.format('%d', now_ms), 's ' .. name .. '/' .. run)
      sends[#sends + 1] = send
    else
      lost[#lost + 1] = name .. '/' .. run
    end
  end
end
return add_opened({ 'resent', #lost, unpack(lost) }, keys, sends, now_ms)
