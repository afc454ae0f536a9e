-- Adds words to those that a field has already.
local function join_words(fields, name, words)
  for at = 1, #fields, 2 do
    if fields[at] == name and #words > 0 then
      fields[at + 1] = fields[at + 1] .. ' ' .. table.concat(words, ' ')
      return
    end
  end
  add_words(fields, name, words)
end

-- Adds the words of the event that tells of it: those of its kind, or, where the hook is to run first, id and kind.
local function add_finished(fields, how, kind, ids, words)
  if not how.hook then return add_words(fields, kind, words) end
  local stored = {}
  for index, id in ipairs(ids) do stored[index] = id .. ' ' .. kind end
  join_words(fields, 'finalizing', stored)
end
