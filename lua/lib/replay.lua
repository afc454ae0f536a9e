-- The answer to a call that was executed before, or nil for a new one. The record of a line of calls is its last call
-- and the answer, in rows: number, fences lost, fences taken back, first fence, how many begin, ids; or the word
-- closed. The payloads have no more bytes than `most`: in place of one that does not fit there is the size.
local function replay(calls, line, call, worker, locks, places, extra_columns, most)
  local record = redis.call('HGET', calls, line)
  if not record then return nil end
  if record == 'closed' then return { 'closed' } end
  local number = tonumber(string.match(record, '^%d+'))
  if call > number then return nil end
  if call < number then return { 'stale' } end
  local lost, taken, fence, begin, ids = string.match(record, '^%d+\n([^\n]*)\n([^\n]*)\n(%d+)\n(-?%d+)\n(.*)$')
  local claimed, fences, answer, payloads, stored, all = {}, {}, {}, {}, {}, 0
  for id in string.gmatch(ids, '%S+') do
    local at = #claimed + 1
    claimed[at], fences[at] = id, string.format('%d', fence + at - 1)
    answer[at], payloads[at] = '{}', ''
  end
  local extras = #claimed > 0 and not none_of(unpack(extra_columns)) and extras_of(extra_columns, claimed) or {}
  for _, extra in ipairs(extras) do
    stored[extra[1]] = extra[9]
    if extra[9] then extra[9] = extra[9] .. ' ' .. redis.call('HSTRLEN', places.payload, claimed[extra[1]]) end
  end
  for _, at in ipairs(held_by(locks, worker, claimed, fences)) do
    local id, from = claimed[at], places.payload
    if stored[at] then from = outcome_of(stored[at]) == 'completed' and places.result or places.errors end
    local bytes = redis.call('HSTRLEN', from, id)
    -- The call before may have allowed more.
    local is_apart = all + bytes > most
    if not is_apart then all = all + bytes end
    answer[at], payloads[at] = id, is_apart and bytes or redis.call('HGET', from, id) or ''
  end
  return { 'settled', lost, taken, fence, table.concat(answer, ' '), payloads, extras, '', tonumber(begin) }
end
