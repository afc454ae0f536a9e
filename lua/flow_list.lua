-- Reads a page of the instances of a workflow that are in one place. Changes nothing.
-- Uses     page
-- KEYS[1]  place     (zset)  instances by time of the last step, pause or end, ms
-- KEYS[2]  instances (hash)  instance -> run, turn, live nodes, open nodes, shape, first node that broke it
-- KEYS[3]  stopping  (hash)  instance -> how it will end, and why
-- KEYS[4]  value     (hash)  instance/node -> value, or failure
-- KEYS[5]  error     (hash)  instance -> why it ended
-- ARGV[1]  newest    (1: newest first, else oldest first)
-- ARGV[2]  cursor    (of the page before; '' for the first page)
-- ARGV[3]  look      (how many to look at)
-- Returns  {'page', next cursor ('': the end), ten words per instance: id, in this place since (ms), run, live nodes,
--          open nodes, 1 if it is stopping else 0, when its jobs may begin (ms; 0: not known), first node that broke it
--          or '-', its failure or '', why the instance ended or ''}; children are left out
-- Emits    nothing
-- Refuses  WRONGTYPE
-- A failure, without its message if that is very long.
local function short(failure)
  if #failure <= 8192 then return failure end
  return '{"code":"' .. (string.match(failure, '"code":"([a-z0-9_]*)"') or 'corrupt') .. '","message":""}'
end

local ids, scores, next_cursor = ordered_page(place, ARGV[1] == '1', ARGV[2], tonumber(ARGV[3]), '-inf', '+inf')
local reply = { 'page', next_cursor }
for at, flow in ipairs(ids) do
  if not string.find(flow, '/', 1, true) then
    local run, live, out, bad, due = string.match(redis.call('HGET', instances, flow) or '',
      '^(%d+) %d+ (%d+) (%d+) %S+ (%S+) ?(%d*)')
    local stops = redis.call('HEXISTS', stopping, flow)
    local said = bad and bad ~= '-' and redis.call('HGET', value, flow .. '/' .. bad) or ''
    local why = redis.call('HGET', errors, flow) or ''
    for _, word in ipairs({ flow, scores[at], run or '0', live or '0', out or '0', stops, tonumber(due) or 0,
      bad or '-', short(said), short(why) }) do
      reply[#reply + 1] = tostring(word)
    end
  end
end
return reply
