-- The reply to a call that was executed before; nil for a new call. The record of a call sequence is the word closed,
-- or its last call and the reply, in rows: number, fences lost, fences taken back, first fence, how many begin, ids.
-- The payloads have at most `most` bytes together; one that does not fit is replaced by its size.
local function replay(replies, sequence, call, worker, locks, places, extra_columns, most)
  local record = redis.call('HGET', replies, sequence)
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
  local has_extras = #claimed > 0 and redis.call('EXISTS', unpack(extra_columns)) > 0
  local extras = has_extras and extras_of(extra_columns, claimed) or {}
  for _, extra in ipairs(extras) do
    stored[extra[1]] = extra[9]
    if extra[9] then extra[9] = extra[9] .. ' ' .. redis.call('HSTRLEN', places.payload, claimed[extra[1]]) end
  end
  for _, at in ipairs(held_by(locks, worker, claimed, fences)) do
    local id, from = claimed[at], places.payload
    if stored[at] then from = outcome_of(stored[at]) == 'completed' and places.result or places.errors end
    local bytes = redis.call('HSTRLEN', from, id)
    -- The earlier call may have allowed more bytes.
    local is_apart = all + bytes > most
    if not is_apart then all = all + bytes end
    answer[at], payloads[at] = id, is_apart and bytes or redis.call('HGET', from, id) or ''
  end
  return { 'settled', lost, taken, fence, table.concat(answer, ' '), payloads, extras, '', tonumber(begin) }
end
