-- Counts new jobs in `meta`, and reports them. `facts` are from `meta`: eventMode, events, in, largest and nodes.
-- `largest` is the size of the largest payload, and `news` has what else is new in `meta`.
local function count_new_jobs(meta, events, facts, ids, largest, has_nodes, news)
  -- Redis would format the numbers itself, which is slower.
  news[#news + 1], news[#news + 2] = 'in', string.format('%d', (tonumber(facts[3]) or 0) + #ids)
  local total = string.format('%d', (tonumber(facts[2]) or 0) + #ids)
  if facts[1] ~= 'off' then news[#news + 1], news[#news + 2] = 'events', total end
  -- From its first workflow job on, a settle reports the ends of the task's jobs to workflows.
  if has_nodes and not facts[5] then news[#news + 1], news[#news + 2] = 'nodes', 1 end
  if largest > (tonumber(facts[4]) or 0) then
    news[#news + 1], news[#news + 2] = 'largest', bound_of(largest)
  end
  redis.call('HSET', meta, unpack(news))
  if facts[1] ~= 'off' then
    append_entry(events, meta, 'events', total, #ids, '', { 'dispatched', table.concat(ids, ' ') })
  end
end
