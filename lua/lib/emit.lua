-- Appends `name`, and the words joined by spaces (no id holds a space), to an entry's fields.
local function add_words(fields, name, words)
  if #words > 0 then
    fields[#fields + 1] = name
    fields[#fields + 1] = table.concat(words, ' ')
  end
end

-- Appends one entry, by pcall: an event that cannot be written must not undo the transition that it tells of. `total`
-- counts all events of the stream so far, so that a slow reader knows how many it missed. The stream is bounded by
-- entries, and by events, of which one entry can hold hundreds: at each 100,000th what is older than the last one goes.
local function append_entry(stream, limit, meta, counter, total, count, worker, fields)
  local id = redis.pcall('XADD', stream, 'MAXLEN', '~', limit, '*', 'total', total, 'worker', worker, unpack(fields))
  if total % 100000 < count and type(id) == 'string' then
    local mark = redis.call('HGET', meta, counter .. 'Mark')
    if mark then redis.pcall('XTRIM', stream, 'MINID', '~', mark) end
    redis.pcall('HSET', meta, counter .. 'Mark', id)
  end
end

-- Counts the events and appends their entry.
local function emit(stream, limit, meta, counter, count, worker, fields)
  local total = redis.pcall('HINCRBY', meta, counter, count)
  if type(total) == 'number' then append_entry(stream, limit, meta, counter, total, count, worker, fields) end
end
