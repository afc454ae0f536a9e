-- Lists instances of a workflow whose last step was long ago, to be compared with the jobs of their nodes. Ends
-- unreadable instances, and requests another look at running instances without open nodes.
-- Uses     now shrink_first words events emit types book flow flow_step flow_events
-- KEYS[1]  running   (zset)  instances by time of the last step, ms
-- KEYS[2]  paused    (zset)  instances by pause time, ms
-- KEYS[3]  instances (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[4]  failed    (zset)  instances by end time, ms
-- KEYS[5]  shapes    (hash)  graphs, by digest
-- KEYS[6]  stopping  (hash)  instance -> how it will end, and why
-- KEYS[7]  error     (hash)  instance -> why it ended
-- KEYS[8]  meta      (hash)  event total
-- KEYS[9]  events    (stream)  events of instances and nodes
-- KEYS[10] outbox    (zset)  pending steps, by due time, ms
-- ARGV[1]  age       (ms: instances with a younger step are left out)
-- ARGV[2]  limit     (instances per call, at most 200)
-- Returns  {'taken', 1 if others remain else 0, instances with open nodes, and running ones without}
-- Emits    ended
-- Refuses  WRONGTYPE before the first write
local limit, _, now_ms = tonumber(ARGV[2]), now_us()
expect_types({}, {}, { instances, shapes, stopping, errors, meta }, { running, paused, failed, outbox })
local taken, more, is_known, is_running = {}, 0, {}, {}
shrink_first('ZREM', running)
-- Paused instances get a share, however many others run.
local room = limit - math.min(math.floor(limit / 10), redis.call('ZCARD', paused))
for _, place in ipairs({ running, paused }) do
  local found = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('%d', now_ms - ARGV[1]), 'LIMIT', 0,
    place == running and room or limit - #taken)
  local marks = {}
  for _, flow in ipairs(found) do
    marks[#marks + 1], marks[#marks + 2], taken[#taken + 1] = string.format('%d', now_ms), flow, flow
    is_running[flow] = place == running
  end
  -- Listed instances move to the end of the order.
  if #marks > 0 then redis.call('ZADD', place, 'XX', unpack(marks)) end
  if #taken >= limit or place == running and #found >= room then more = 1 end
end
local reply = { 'taken', more }
if #taken == 0 then return reply end
for place, text in ipairs(redis.call('HMGET', instances, unpack(taken))) do
  local run, turn, _, out, digest = string.match(text or '', LINE)
  if digest and is_known[digest] == nil then is_known[digest] = redis.call('HEXISTS', shapes, digest .. '@') == 1 end
  if not digest or not is_known[digest] then
    give_up(keys, taken[place], { run or string.match(text or '', '^%d+') or '1', turn or '0', digest or '-' }, now_ms)
  elseif out ~= '0' or is_running[taken[place]] then
    -- A running instance without open nodes has damaged nodes, or a missing right stopped a step midway. Another look
    -- at its nodes opens some, or ends the instance.
    reply[#reply + 1] = taken[place]
    local entry = 'o ' .. taken[place] .. '/' .. run
    if out == '0' and not redis.call('ZSCORE', outbox, entry) then note(now_ms, entry) end
  end
end
write_and_report(keys)
return reply
