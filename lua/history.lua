-- Looks for a job in the entries of a stream, a bounded number of them. Changes nothing.
-- KEYS[1]  stream   (stream)  events or stalls
-- ARGV[1]  id       (of the job, or the name of a field: entries that have it)
-- ARGV[2]  after    (id of an entry: those behind it are looked at)
-- ARGV[3]  until    (id of the last one, or +)
-- ARGV[4]  look     (how many entries, at most 500; no more are begun once 64 KiB were looked at)
-- Returns  {'read', id of the last entry that was looked at ('': there are no more), the entries that name the job}
-- Emits    nothing
-- Refuses  WRONGTYPE
local wanted, look = ARGV[1], tonumber(ARGV[4])
local found, last, looked, bytes, is_end = {}, ARGV[2], 0, 0, false
local is_context = { total = true, worker = true, watched = true, by = true, reason = true, paused = true, ran = true }
-- Whether the words, which may be of hundreds of jobs, have the wanted one. They are not copied.
local function has_word(words)
  local first, behind = string.find(words, wanted, 1, true)
  while first do
    local starts = first == 1 or string.byte(words, first - 1) == 32
    if starts and (behind == #words or string.byte(words, behind + 1) == 32) then return true end
    first, behind = string.find(words, wanted, behind + 1, true)
  end
  return false
end
-- A few at a time: one entry may take 200 bytes or some hundred KiB.
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
