-- Which of these jobs exist in any state, and which have not ended; both by id. `ended` has the terminal sets that are
-- not empty.
local function known_jobs(payload, ended, ids)
  local exists, open = {}, {}
  if #ids == 0 then return exists, open end
  local over = terminal_of(ended, ids)
  for at, id in ipairs(ids) do
    local has_payload = redis.call('HEXISTS', payload, id) == 1
    exists[id], open[id] = has_payload or over[at], has_payload and not over[at]
  end
  return exists, open
end
