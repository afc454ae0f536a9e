-- Puts the jobs into their own lists (high, normal, low) in the order given, and writes since when they wait there.
-- command is 'RPUSH' for the back; 'LPUSH' for the front, where the first of the ids is to be the next one claimed.
local function back_to_wait(command, lists, priority, ids, waiting_since, now_ms)
  local by_priority = { high = {}, normal = {}, low = {} }
  local own = redis.call('EXISTS', priority) == 1 and redis.call('HMGET', priority, unpack(ids)) or {}
  local first, last, step = 1, #ids, 1
  if command == 'LPUSH' then first, last, step = #ids, 1, -1 end
  for index = first, last, step do
    local list = by_priority[own[index] or 'normal'] or by_priority.normal
    list[#list + 1] = ids[index]
  end
  for place, name in ipairs({ 'high', 'normal', 'low' }) do
    if #by_priority[name] > 0 then redis.call(command, lists[place], unpack(by_priority[name])) end
  end
  stand_since(waiting_since, ids, now_ms)
end
