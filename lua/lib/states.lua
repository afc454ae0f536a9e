-- The state of each job, by the one place that holds its id. keys: payload, locks, delayed, completed, failed,
-- cancelled.
local function states_of(keys, ids)
  local states = {}
  local places = { { 4, 'completed' }, { 5, 'failed' }, { 6, 'cancelled' }, { 3, 'delayed' } }
  for _, place in ipairs(places) do
    local scores = redis.call('ZMSCORE', keys[place[1]], unpack(ids))
    for i = 1, #ids do
      if scores[i] then states[i] = states[i] or place[2] end
    end
  end
  local tokens = redis.call('HMGET', keys[2], unpack(ids))
  for i, id in ipairs(ids) do
    if not states[i] or states[i] == 'delayed' then
      if redis.call('HEXISTS', keys[1], id) == 0 then
        states[i] = 'unknown'
      elseif tokens[i] then
        states[i] = 'running'
      else
        states[i] = states[i] or 'waiting'
      end
    end
  end
  return states
end
