-- Counts new jobs in `meta`, and reports them. `facts` are from `meta`: eventMode, events, in and largest.
-- `largest` is the size of the largest payload, and `news` has what else is new in `meta`.
local function count_new_jobs(meta, events, facts, ids, largest, has_nodes, news)
  -- Redis would format the numbers itself, which is slower.
  local entered = string.format('%d', (tonumber(facts[3]) or 0) + #ids)
  local total = facts[1] ~= 'off' and string.format('%d', (tonumber(facts[2]) or 0) + #ids)
  news = total and { 'in', entered, 'events', total, unpack(news) } or { 'in', entered, unpack(news) }
  -- Once it is set, a settle reports the ends of nodes to their workflows. Setting it again costs less than reading it.
  if has_nodes then news[#news + 1], news[#news + 2] = 'nodes', 1 end
  if largest > (tonumber(facts[4]) or 0) then
    -- Uses here largest
    news[#news + 1], news[#news + 2] = 'largest', bound_of(largest)
  end
  redis.call('HSET', meta, unpack(news))
  if total then
    local words = #ids > 1 and table.concat(ids, ' ') or ids[1]
    append_entry(events, meta, 'events', total, #ids, '', { 'dispatched', words })
  end
end
