-- Appends `name`, and the words joined by spaces (no id holds a space), to an entry's fields.
local function add_words(fields, name, words)
  if #words > 0 then
    fields[#fields + 1] = name
    fields[#fields + 1] = table.concat(words, ' ')
  end
end

-- Appends one entry, by pcall: an event that cannot be written must not undo the transition that it tells of. `kind` is
-- events or stalls, and `total` counts all of the stream so far, so that a slow reader knows how many it missed. The
-- stream is bounded by entries, and by events, of which one entry can hold hundreds: at each 100,000th what is older
-- than the last one goes.
local function append_entry(stream, meta, kind, total, count, worker, fields)
  local kept = kind == 'stalls' and 2000 or 10000
  local id = redis.pcall('XADD', stream, 'MAXLEN', '~', kept, '*', 'total', total, 'worker', worker, unpack(fields))
  if total % 100000 < count and type(id) == 'string' then
    local mark = redis.call('HGET', meta, kind .. 'Mark')
    if mark then redis.pcall('XTRIM', stream, 'MINID', '~', mark) end
    redis.pcall('HSET', meta, kind .. 'Mark', id)
  end
end

-- Counts the events and appends their entry.
local function emit_event(stream, meta, kind, count, worker, fields)
  local total = redis.pcall('HINCRBY', meta, kind, count)
  if type(total) == 'number' then append_entry(stream, meta, kind, total, count, worker, fields) end
end
