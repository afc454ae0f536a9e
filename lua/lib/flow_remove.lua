-- Removes an instance, or one that was written in part, with all its data, and its shape if no other instance uses it.
-- A call removes up to `budget` of its `count` nodes, the last ones first; `cursor` has the progress. Returns what is
-- left of the budget, and whether nothing is left of the instance.
local function remove_instance(keys, flow, digest, count, budget)
  local mark = 't ' .. flow
  local phase, left = string.match(redis.call('HGET', keys.cursor, mark) or '', '^([ns]) (%d+)$')
  -- No graph has more nodes: no start has written a larger number.
  count = count <= 10000 and count or 0
  left = math.min(tonumber(left) or count, count > 0 and count or 10000)
  if phase == 's' and not digest then left = 0 end
  if phase ~= 's' then
    local fields = {}
    for index = math.max(0, left - budget), left - 1 do fields[#fields + 1] = node_of(flow, index) end
    for _, key in ipairs(#fields > 0 and { keys.nodes, keys.input, keys.value, keys.grow } or {}) do
      redis.call('HDEL', key, unpack(fields))
    end
    left, budget = left - #fields, budget - #fields
    if left > 0 then
      redis.call('HSET', keys.cursor, mark, 'n ' .. left)
      return 0, false
    end
    -- If the number of users is unknown, the shape stays.
    local users = digest and tonumber(string.match(redis.call('HGET', keys.shapes, digest .. '#') or '', '^%d+$'))
    if users and users > 1 then
      redis.call('HSET', keys.shapes, digest .. '#', string.format('%d', users - 1))
    elseif users then
      redis.call('HSET', keys.shapes, digest .. '#', '0')
      redis.call('HDEL', keys.shapes, digest, digest .. '@')
      left = count
    end
  end
  -- The shape, unless a start uses it meanwhile.
  if left > 0 and redis.call('HGET', keys.shapes, digest .. '#') == '0' then
    local from, names = math.max(0, left - 500), {}
    for index = from, left - 1 do names[#names + 1] = digest .. '/' .. index end
    for place, record in ipairs(redis.call('HMGET', keys.shapes, unpack(names))) do
      local dependents = math.min(tonumber(string.match(record or '', '\n(%d+)[^\n]*$')) or 0, 10000)
      for page = 1, math.ceil(dependents / 500) - 1 do
        redis.call('HDEL', keys.shapes, names[place] .. '/' .. page)
      end
    end
    redis.call('HDEL', keys.shapes, unpack(names))
    if from > 0 then
      redis.call('HSET', keys.cursor, mark, 's ' .. from)
      return 0, false
    end
    redis.call('HDEL', keys.shapes, digest .. '#')
  end
  redis.call('HDEL', keys.cursor, mark)
  return budget, true
end
