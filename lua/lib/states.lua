-- The state of each job, by the one place that holds its id. `places` has the places by the names of their states.
local function states_of(payload, locks, places, ids)
  local states = {}
  for _, state in ipairs({ 'completed', 'failed', 'cancelled', 'delayed' }) do
    local scores = redis.call('ZMSCORE', places[state], unpack(ids))
    for index = 1, #ids do
      if scores[index] then states[index] = states[index] or state end
    end
  end
  local tokens = redis.call('HMGET', locks, unpack(ids))
  for index, id in ipairs(ids) do
    if not states[index] or states[index] == 'delayed' then
      if redis.call('HEXISTS', payload, id) == 0 then
        states[index] = 'unknown'
      elseif tokens[index] then
        states[index] = 'running'
      else
        states[index] = states[index] or 'waiting'
      end
    end
  end
  return states
end
