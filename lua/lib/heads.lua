-- Where the waiting jobs of `settle` are: in the lists. The variant `settle_keyed` takes them from lanes instead.

-- Why this script cannot answer the call: another one has to, or the task is not declared. Nil if it can.
local function refused_for(task)
  return not task.declaredAt and 'undeclared' or task.keyed and 'keyed' or nil
end

-- For how long the task rests, ms, since handlers were rate limited.
local function asked_rest(out)
  local longest = 0
  for _, rest in ipairs(out.rests) do longest = math.max(longest, rest.ms) end
  return longest
end

-- Reads up to `want` entries, first list first, and notes in `found` how many are to be removed from each list, and
-- whether others remain.
local function read_heads(lists, want, found)
  local heads = {}
  for _, list in ipairs(lists) do
    -- One more, to know whether entries remain.
    local room = want - #heads
    local ids = redis.call('LRANGE', list, 0, room)
    found.left = #ids > room
    local count = math.min(#ids, room)
    if count > 0 then found.popped[list] = count end
    for at = 1, count do heads[#heads + 1] = ids[at] end
    if found.left then break end
  end
  return heads
end

-- Removes the entries that were read.
local function pop_heads(found)
  -- Not LPOP, which would return the ids again.
  for list, popped in pairs(found.popped) do redis.call('LTRIM', list, popped, -1) end
end
