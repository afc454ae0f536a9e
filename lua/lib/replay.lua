-- The record of the last settle of a line: its number and its answer (fences and ids, no payloads), in rows of text.
local function record_call(calls, line, call, lost, cancelled, fence, ids)
  redis.call('HSET', calls, line, table.concat({ call, table.concat(lost, ' '), table.concat(cancelled, ' '),
    fence, table.concat(ids, ' ') }, '\n'))
end

-- The answer to a call that was executed before, or nil for a new one. A job of the answer that the worker
-- lost since then is named ''.
local function replay(calls, line, call, worker, locks, payload, extra_columns)
  local record = redis.call('HGET', calls, line)
  if not record then return nil end
  local number = tonumber(string.match(record, '^%d+'))
  if call > number then return nil end
  if call < number then return { 'stale' } end
  local _, lost, cancelled, fence, ids = string.match(record, '^(%d+)\n([^\n]*)\n([^\n]*)\n(%d+)\n(.*)$')
  local function words(row)
    local list = {}
    for word in string.gmatch(row, '%S+') do list[#list + 1] = word end
    return list
  end
  local claimed, fences = words(ids), {}
  for i = 1, #claimed do fences[i] = string.format('%.0f', fence + i - 1) end
  local held, payloads = held_by(locks, worker, claimed, fences), {}
  local answer = {}
  for i = 1, #claimed do answer[i], payloads[i] = '', '' end
  for _, i in ipairs(held) do
    answer[i], payloads[i] = claimed[i], redis.call('HGET', payload, claimed[i]) or ''
  end
  return { 'settled', words(lost), words(cancelled), fence, answer, payloads, extras_of(extra_columns, claimed), '' }
end
