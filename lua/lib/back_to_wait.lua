-- Puts the jobs into the lists of their priorities, in the order given, and records since when they wait. `command` is
-- 'RPUSH' for the back, or 'LPUSH' for the front: then the first id is claimed next.
local function back_to_wait(command, lists, priority, ids, enqueued_at, now_ms)
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
  record_since(enqueued_at, ids, now_ms)
end
