-- Puts the jobs into a terminal set, with what is to be kept of each ({id, value, id, value ..} of the column that its
-- kind has), or removes them at once when the task keeps none. Nothing else adds to a terminal set. Where the task has
-- a hook, how they ended is stored instead, and the hook runs next: of a job that is `broken` there is none. `ran` has
-- how long the handler of each ran, where that is known.
local function finish(places, how, kind, ids, values, broken, ran)
  local waits = how.hook and not broken
  if kind == 'failed' and not waits and #ids > 0 then redis.pcall('HINCRBY', places.meta, 'outFailed', #ids) end
  if not waits and how.keep[kind] == '0' then return remove_columns(places.columns, ids) end
  local place, score, entries = waits and places.finalizing or places[kind], string.format('%d', how.now_ms), {}
  if #values > 0 then redis.call('HSET', kind == 'completed' and places.result or places.errors, unpack(values)) end
  for index = 1, #ids do entries[2 * index - 1], entries[2 * index] = score, ids[index] end
  if waits then
    local outcomes = {}
    for index, id in ipairs(ids) do
      outcomes[2 * index - 1], outcomes[2 * index] = id, kind .. ' 0 0 ' .. (ran and ran[index] or '-')
    end
    redis.call('HSET', places.outcome, unpack(outcomes))
  end
  redis.call('ZADD', place, unpack(entries))
end

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
