-- Appends `name`, and the words joined by spaces (no id holds a space), to an entry's fields.
local function add_words(fields, name, words)
  if #words > 0 then
    fields[#fields + 1] = name
    fields[#fields + 1] = table.concat(words, ' ')
  end
end

-- Adds one entry, by pcall: an event that cannot be written must not undo the transition that it tells of.
-- `total` counts all events of the stream so far, so that a slow reader knows how many it missed.
local function emit(stream, limit, meta, counter, count, worker, fields)
  local total = redis.pcall('HINCRBY', meta, counter, count)
  if type(total) == 'number' then
    redis.pcall('XADD', stream, 'MAXLEN', '~', limit, '*', 'total', total, 'worker', worker, unpack(fields))
  end
end
