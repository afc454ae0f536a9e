-- Searches a bounded number of entries of a stream for a job. Changes nothing.
-- KEYS[1]  stream   (stream)  events or stalls
-- ARGV[1]  id       (of the job; or the name of a field, to find entries with that field)
-- ARGV[2]  after    (id of an entry: the search begins after it)
-- ARGV[3]  until    (id of the last entry to search, or +)
-- ARGV[4]  look     (entries to search, at most 500; the search ends early after 64 KiB)
-- Returns  {'read', id of the last entry that was searched ('': there are no more), the entries that name the job}
-- Emits    nothing
-- Refuses  WRONGTYPE
local wanted, look = ARGV[1], tonumber(ARGV[4])
local found, last, looked, bytes, is_end = {}, ARGV[2], 0, 0, false
local is_context = { total = true, worker = true, watched = true, by = true, reason = true, paused = true, ran = true }
-- Whether the words, which may be those of hundreds of jobs, contain the wanted one. They are not copied.
local function has_word(words)
  local first, after = string.find(words, wanted, 1, true)
  while first do
    local starts = first == 1 or string.byte(words, first - 1) == 32
    if starts and (after == #words or string.byte(words, after + 1) == 32) then return true end
    first, after = string.find(words, wanted, after + 1, true)
  end
  return false
end
-- A few at a time: one entry may have 200 bytes or some hundred KiB.
while looked < look and bytes < LARGE / 8 and not is_end do
  local few = math.min(4, look - looked)
  local entries = redis.call('XRANGE', stream, '(' .. last, ARGV[3], 'COUNT', few)
  is_end = #entries < few
  for _, entry in ipairs(entries) do
    last, looked = entry[1], looked + 1
    local is_found = false
    for at = 1, #entry[2], 2 do
      local name, words = entry[2][at], entry[2][at + 1]
      bytes = bytes + #words
      is_found = is_found or name == wanted or not is_context[name] and has_word(words)
    end
    if is_found then found[#found + 1] = entry end
  end
end
return { 'read', is_end and '' or last, found }
