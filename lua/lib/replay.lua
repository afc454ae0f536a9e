-- The answer to a call that was executed before, or nil for a new one. The record of a line of calls is its last call
-- and the answer, in rows: number, fences lost, fences taken back, first fence, how many begin, ids; or the word
-- closed.
local function replay(calls, line, call, worker, locks, payload, extra_columns)
  local record = redis.call('HGET', calls, line)
  if not record then return nil end
  if record == 'closed' then return { 'closed' } end
  local number = tonumber(string.match(record, '^%d+'))
  if call > number then return nil end
  if call < number then return { 'stale' } end
  local lost, taken, fence, begin, ids = string.match(record, '^%d+\n([^\n]*)\n([^\n]*)\n(%d+)\n(-?%d+)\n(.*)$')
  local claimed, fences, answer, payloads = {}, {}, {}, {}
  for id in string.gmatch(ids, '%S+') do
    local at = #claimed + 1
    claimed[at], fences[at] = id, string.format('%d', fence + at - 1)
    answer[at], payloads[at] = '{}', ''
  end
  for _, at in ipairs(held_by(locks, worker, claimed, fences)) do
    local bytes = redis.call('HSTRLEN', payload, claimed[at])
    answer[at], payloads[at] = claimed[at], bytes > LARGE and bytes or redis.call('HGET', payload, claimed[at]) or ''
  end
  local extras = #claimed > 0 and not none_of(unpack(extra_columns)) and extras_of(extra_columns, claimed) or {}
  return { 'settled', lost, taken, fence, table.concat(answer, ' '), payloads, extras, '', tonumber(begin) }
end
