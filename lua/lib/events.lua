-- Appends one entry, by pcall: an event that cannot be written must not undo its transition. `kind` is events or
-- stalls. `total` counts all events of the stream, so a slow reader knows how many it missed. An entry may hold
-- hundreds of events, so the stream is bounded by entries and by events: at each 100th of the events it is trimmed to
-- a number of entries, and at each 100,000th event entries older than the previous mark are trimmed.
local function append_entry(stream, meta, kind, total, count, worker, fields)
  local past = total % 100000
  if kind == 'events' and past % 100 >= count then
    redis.pcall('XADD', stream, '*', 'total', total, 'worker', worker, unpack(fields))
    return
  end
  local kept = kind == 'stalls' and '2000' or '10000'
  local id = redis.pcall('XADD', stream, 'MAXLEN', '~', kept, '*', 'total', total, 'worker', worker, unpack(fields))
  if past < count and type(id) == 'string' then
    local mark = redis.call('HGET', meta, kind .. 'Mark')
    if mark then redis.pcall('XTRIM', stream, 'MINID', '~', mark) end
    redis.pcall('HSET', meta, kind .. 'Mark', id)
  end
end
