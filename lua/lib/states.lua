-- The state of each job, by the one place that holds its id, and its stamp: the score; the token if it is held; '' if
-- it waits. `places` has the places by state. Add `claimed` to it to distinguish held jobs that have not begun, and
-- `outcome` to distinguish those whose hook runs.
local function states_of(payload, locks, places, ids)
  local states, stamps = {}, {}
  local has_hooks = not places.outcome or redis.call('HLEN', places.outcome) > 0
  for _, state in ipairs({ 'completed', 'failed', 'cancelled', 'delayed', has_hooks and 'finalizing' or nil }) do
    local scores = redis.call('ZMSCORE', places[state], unpack(ids))
    for index = 1, #ids do
      if scores[index] and not states[index] then states[index], stamps[index] = state, scores[index] end
    end
  end
  local tokens = redis.call('HMGET', locks, unpack(ids))
  local marks = places.claimed and redis.call('HLEN', places.claimed) > 0
    and redis.call('HMGET', places.claimed, unpack(ids)) or {}
  local outcomes = has_hooks and places.outcome and redis.call('HMGET', places.outcome, unpack(ids)) or {}
  for index, id in ipairs(ids) do
    if not states[index] or states[index] == 'delayed' or states[index] == 'finalizing' then
      if redis.call('HEXISTS', payload, id) == 0 then
        states[index], stamps[index] = 'unknown', ''
      elseif tokens[index] then
        local is_claimed = marks[index] and marks[index] == string.match(tokens[index], ':(%d+)$')
        states[index], stamps[index] = outcomes[index] and 'finalizing' or is_claimed and 'claimed' or 'running',
          tokens[index]
      else
        states[index], stamps[index] = states[index] or 'waiting', stamps[index] or ''
      end
    end
  end
  return states, stamps
end
