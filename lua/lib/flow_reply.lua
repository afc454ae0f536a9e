-- Adds eight words per opened node to the reply: instance, node, run, task ('@': its payload is a graph, which the
-- caller starts as a child), dispatch options (JSON or ''; for a graph that a job returned, the policy of the
-- instance), ms until it may run, then 'here' and the payload. A payload that would exceed 16 KiB of payloads in all is
-- not copied: the last two are then its column, and its field and size.
local function add_opened(reply, keys, opened, now_ms)
  local bytes, here = 0, {}
  for _, send in ipairs(opened) do
    send.is_here = bytes + send.bytes <= NARROW_BYTES
    if send.is_here then
      bytes = bytes + send.bytes
      local fields = here[send.column] or {}
      fields[#fields + 1], here[send.column] = send.field, fields
    end
  end
  for column, fields in pairs(here) do fetch(keys, column, fields) end
  for _, send in ipairs(opened) do
    local one, at = send.one, #reply
    one.wait = one.wait or string.format('%d', math.max(0, one.due - now_ms))
    reply[at + 1], reply[at + 2], reply[at + 3] = one.flow, tostring(send.index), one.run
    reply[at + 4], reply[at + 5], reply[at + 6] = send.task, send.own, one.wait
    if send.is_here then
      reply[at + 7], reply[at + 8] = 'here', read(keys, send.column, send.field) or 'null'
    else
      reply[at + 7], reply[at + 8] = send.column, send.field .. ' ' .. send.bytes
    end
  end
  return reply
end

-- Like add_opened, but first the number of outbox entries to carry out at once, and those entries: nodes with more
-- dependents to visit, and stopping instances with open nodes.
local function add_news(reply, keys, opened, now_ms)
  local count = #reply + 1
  reply[count] = 0
  for _, mark in ipairs(opened.later) do reply[#reply + 1] = 'v ' .. mark end
  for _, one in ipairs(keys.stopped or {}) do
    if one.runs then reply[#reply + 1] = 'x ' .. one.flow .. '/' .. one.run end
  end
  reply[count] = #reply - count
  return add_opened(reply, keys, opened, now_ms)
end
