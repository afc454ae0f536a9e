-- Records the counters of a task in its time series, and counts how long runs waited and took.
-- Uses     now
-- KEYS[1]  meta    (hash)  counters
-- KEYS[2]  series  (hash)  minute or hour -> counters at its end, and durations
-- ARGV[1]  durations  (words: kind and bucket, how many, and so on; '': none)
-- Returns  {'added'}; or {'unknown'}: the task has no data, and nothing is written
-- Emits    nothing
-- Refuses  WRONGTYPE before the first write
local facts = redis.call('HMGET', meta, 'in', 'out', 'outFailed')
if not facts[1] and redis.call('EXISTS', meta) == 0 then return { 'unknown' } end
local _, now = now_us()
local counters = string.format('%d %s %s %s', now, facts[1] or '0', facts[2] or '0', facts[3] or '0')

-- Adds the words of `text` to the counts by kind and bucket.
local function add_durations(sums, text)
  for bucket, count in string.gmatch(text, '(%a%d+) (%d+)') do sums[bucket] = (sums[bucket] or 0) + tonumber(count) end
end

-- Each row is used again after a day of minutes, or 30 days of hours.
local rows, spent = {}, {}
local function set(field, value) rows[#rows + 1], rows[#rows + 2] = field, value end
for _, of in ipairs({ { 'm', 60000, 1440 }, { 'h', 3600000, 720 } }) do
  local name, length, rows_of_kind = unpack(of)
  local number, sums, words = math.floor(now / length), {}, {}
  local row = name .. number % rows_of_kind
  local before = redis.call('HMGET', series, row, row .. 'd')
  local at = tonumber(string.match(before[1] or '', '^%d+'))
  if at and math.floor(at / length) == number then add_durations(sums, before[2] or '') end
  add_durations(sums, ARGV[1])
  for bucket, count in pairs(sums) do words[#words + 1] = bucket .. ' ' .. string.format('%d', count) end
  table.sort(words)
  set(row, counters)
  if #words > 0 then
    set(row .. 'd', table.concat(words, ' '))
  elseif before[2] then
    spent[#spent + 1] = row .. 'd'
  end
end
redis.call('HSET', series, unpack(rows))
if #spent > 0 then redis.call('HDEL', series, unpack(spent)) end
return { 'added' }
