-- Adds `name` and the words, joined by spaces, to the fields of an entry. No id contains a space.
local function add_words(fields, name, words)
  if #words > 0 then
    fields[#fields + 1] = name
    fields[#fields + 1] = table.concat(words, ' ')
  end
end
