-- Adds words to a field, or adds the field.
local function join_words(fields, name, words)
  for at = 1, #fields, 2 do
    if fields[at] == name and #words > 0 then
      fields[at + 1] = fields[at + 1] .. ' ' .. table.concat(words, ' ')
      return
    end
  end
  add_words(fields, name, words)
end

-- Adds the event of the end: its kind, or `finalizing` (id and kind) if the hook runs first.
local function add_finished(fields, how, kind, ids, words)
  if not how.hook then return add_words(fields, kind, words) end
  local stored = {}
  for index, id in ipairs(ids) do stored[index] = id .. ' ' .. kind end
  join_words(fields, 'finalizing', stored)
end
