-- Rows of schedules: the rule, the ledger and the recent ticks of each. What cannot be read is nil.

-- The words of a ledger, in order.
local LEDGER = { 'due', 'since', 'fired', 'overlapped', 'missed', 'paused', 'by_hand', 'last', 'job', 'fired_at',
  'late', 'pending', 'before', 'at_least' }

-- How long the ledger and the pause of a removed schedule are kept: 30 days.
local KEPT_MS = 30 * 86400000

-- Reads a ledger. A word that is not set (`-`) is false. Longer numbers than this are damage: scripts add to them.
local function ledger_of(line)
  local ledger, at = {}, 0
  for word in string.gmatch(line or '', '%S+') do
    at = at + 1
    local name, number = LEDGER[at], #word <= 15 and string.match(word, '^%d+$') and tonumber(word)
    if not name then return nil end
    -- The start and the counts are always set.
    if word == '-' and (at == 1 or at > 7) then
      ledger[name] = false
    elseif name == 'job' or name == 'at_least' then
      ledger[name] = word
    elseif number then
      ledger[name] = number
    else
      return nil
    end
  end
  return at == #LEDGER and ledger or nil
end

-- A ledger without ticks, which counts from this time on, ms.
local function new_ledger(since)
  return { since = since, fired = 0, overlapped = 0, missed = 0, paused = 0, by_hand = 0 }
end

-- A number as digits, another word as it is, and `-` for none.
local function word_of(value)
  return type(value) == 'number' and string.format('%d', value) or value or '-'
end

local function ledger_line(ledger)
  local words = {}
  for at, name in ipairs(LEDGER) do words[at] = word_of(ledger[name]) end
  return table.concat(words, ' ')
end

local function rule_of(line)
  local digest, zone, source, stamp, by, json = string.match(line or '', '^(%S+) (%S+) (%a+) (%d+) (%S+) (.+)$')
  if source ~= 'code' and source ~= 'put' or #stamp > 15 then return nil end
  return { digest = digest, zone = zone, source = source, stamp = tonumber(stamp), by = by, json = json }
end

local function rule_line(rule)
  return table.concat({ rule.digest, rule.zone, rule.source, word_of(rule.stamp), rule.by, rule.json }, ' ')
end

-- One word for this many ticks, the newest at `due`: fired, overlapped, missed, paused or by hand.
local function tick_word(due, letter, count)
  return string.format('%d%s%d', due, letter, count)
end

-- The last 20 words, newest first. `words` are new, oldest first. Missed or paused ticks in a row are one word.
local function recent_ticks(known, words)
  local all, recent, counts, letters = {}, {}, {}, {}
  for at = #words, 1, -1 do all[#all + 1] = words[at] end
  for word in string.gmatch(known or '', '%S+') do all[#all + 1] = word end
  for _, word in ipairs(all) do
    local due, letter, count = string.match(word, '^(%d+)(%a)(%d+)$')
    local last = #recent
    if letter and letter == letters[last] and (letter == 'm' or letter == 'p') then
      counts[last] = counts[last] + count
      recent[last] = string.match(recent[last], '^%d+%a') .. word_of(counts[last])
    elseif letter and last < 20 then
      recent[last + 1], letters[last + 1], counts[last + 1] = due .. letter .. count, letter, tonumber(count)
    elseif letter then
      break
    end
  end
  return table.concat(recent, ' ')
end
