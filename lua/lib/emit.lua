-- Counts the events and appends their entry.
local function emit_event(stream, meta, kind, count, worker, fields)
  local total = redis.pcall('HINCRBY', meta, kind, count)
  if type(total) == 'number' then append_entry(stream, meta, kind, total, count, worker, fields) end
end
