-- A job may count as several starts against a rate: its cost, at the beginning of its options. One that costs more than
-- the whole rate counts as that. These functions are in a table, since a script has at most 200 local names.
local costs = {}

function costs.of(own)
  local cost = own and (string.match(own, '^{"cost":(%d+)') or string.match(own, '^{"delay_ms":%d+,"cost":(%d+)'))
  return tonumber(cost) or 1
end

-- How many of these jobs, from the first, fit into what is left of a rate. Notes in `limit` how many starts the next
-- job needs.
function costs.fit(options, ids, limit)
  local room = limit.rate - limit.used
  for at, own in ipairs(redis.call('HMGET', options, unpack(ids))) do
    local cost = math.min(costs.of(own), limit.rate)
    if cost > room then
      limit.needs = cost
      return at - 1
    end
    room = room - cost
  end
  return #ids
end

-- The costs of the claimed jobs that have options, by id.
function costs.by_id(found)
  local by_id = {}
  for _, extra in ipairs(found.extras) do by_id[found.ids[extra[1]]] = costs.of(extra[4]) end
  return by_id
end

-- As how many starts the claimed jobs count.
function costs.starts(found, rate)
  local starts, by_id = 0, costs.by_id(found)
  for _, id in ipairs(found.ids) do starts = starts + math.min(by_id[id] or 1, rate) end
  return starts
end

-- For how many starts the next job has to wait; nil if it may start. Expired jobs and tombstones before it have not
-- started, so it may fit after all.
function costs.missing(limit, used)
  local needs = limit.needs or 1
  return used + needs > limit.rate and needs or nil
end
