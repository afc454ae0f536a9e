-- Returns the due delayed jobs, at most BATCH and none if none is wanted, and when the first delayed job is due.
local function due_jobs(delayed, want, now_ms)
  local next_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
  if want == 0 or not next_due or next_due > now_ms then return {}, next_due end
  return redis.call('ZRANGEBYSCORE', delayed, '-inf', string.format('%d', now_ms), 'LIMIT', 0, BATCH), next_due
end

-- Returns what a claim must look at: the lists, `cancelling`, whether there are candidates, `tombstones` if there are
-- any, the due delayed jobs, and the next due time. In a plain task all but `wait` are empty.
local function rare_work(places, is_plain, want, now_ms)
  if is_plain then return { places.lists[2] }, nil, false, nil, {}, nil end
  return places.lists, places.cancelling, redis.call('SCARD', places.candidates) > 0,
    redis.call('HLEN', places.tombstones) > 0 and places.tombstones or nil, due_jobs(places.delayed, want, now_ms)
end

-- Moves due jobs into their lists, and removes known tombstones from the heads. Returns where else listed jobs may be.
local function clear_heads(places, due, known, terminal_places, meta, now_ms)
  if #due > 0 then
    redis.call('ZREM', places.delayed, unpack(due))
    back_to_wait('RPUSH', places.lists, places.priority, due, places.enqueued_at, now_ms)
  end
  if not known then return terminal_places end
  local elsewhere = { places.delayed, places.finalizing, unpack(terminal_places) }
  strip_tombstones(places.lists, known, meta, places.payload, places.locks, elsewhere, places.outcome)
  return elsewhere
end

-- Returns what a run needs besides the payload, for the jobs that have any: {position, attempt, stalledCount, options,
-- dispatchedAt, snoozes, recovery, '1' if it may expire, the outcome if one is stored}; and the expiry time of each
-- job. `columns` has false in place of an empty column.
local function extras_of(columns, ids)
  local extras, values = {}, {}
  for which, column in ipairs(columns) do
    values[which] = column and redis.call('HMGET', column, unpack(ids)) or {}
  end
  local attempts, stalls, own, times, put_off, recovered, until_ms, stored = unpack(values)
  for at = 1, #ids do
    if attempts[at] or stalls[at] or own[at] or times[at] or put_off[at] or recovered[at] or until_ms[at]
      or stored[at] then
      extras[#extras + 1] = { at, attempts[at] or '0', stalls[at] or '0', own[at] or '', times[at] or '',
        put_off[at] or '', recovered[at] or '', until_ms[at] and '1' or '', stored[at] or nil }
    end
  end
  return extras, until_ms
end

-- Returns the columns of the extras, with false in place of an empty one; false if all are empty.
local function filled_extras(extra_columns, columns)
  if #columns == 0 then return false end
  local is_filled, found, any = {}, {}, false
  for _, column in ipairs(columns) do is_filled[column] = true end
  for which, column in ipairs(extra_columns) do
    found[which] = is_filled[column] and column or false
    any = any or is_filled[column]
  end
  return any and found
end

-- The most bytes of options in the reply to a claim, which a server with small output buffers can still send.
local OPTIONS = 65536

-- The first of these jobs, at least one: a claim sends their options, at most OPTIONS bytes together.
local function fit_options(options, ids)
  local bytes = 0
  for at, own in ipairs(options and redis.call('HMGET', options, unpack(ids)) or {}) do
    bytes = bytes + #(own or '')
    if at > 1 and bytes > OPTIONS then return { unpack(ids, 1, at - 1) } end
  end
  return ids
end

-- Reads payloads from the front: at least one, and at most `most` bytes together. A single larger one is replaced by
-- its size; its worker reads it separately. `largest` bounds every payload of the task, so sizes are queried only if
-- the sum could exceed `most`. Returns the payloads and their number.
local function payloads_of(payload, ids, largest, most, options)
  ids = fit_options(options, ids)
  if largest and largest * #ids <= most then return redis.call('HMGET', payload, unpack(ids)), #ids end
  local payloads, here, positions, bytes, count = {}, {}, {}, 0, 0
  for at, id in ipairs(ids) do
    local size = redis.call('HSTRLEN', payload, id)
    if size > most then
      payloads[at] = size
    else
      bytes = bytes + size
      if bytes > most then break end
      here[#here + 1], positions[#positions + 1] = id, at
    end
    count = at
  end
  if #here > 0 then
    for which, value in ipairs(redis.call('HMGET', payload, unpack(here))) do payloads[positions[which]] = value end
  end
  return payloads, count
end

-- Reads the heads of the lists, first list first, and sorts the entries without writing:
-- `ids`: jobs that may run, and `until_ms`: their expiry times, by position; `corrupt`: jobs with a broken counter;
-- `expired`: expired jobs; `timed`: jobs that leave `expires`; `without_payload`: ids that have none;
-- `known_tombstones`: entries that the key `tombstones` counts. Other ids are skipped: those of locked jobs and of jobs
-- elsewhere, and second entries. `popped` counts the entries to remove, by list; `left` is true if entries remain.
local function next_jobs(lists, want, payload, largest, locks, elsewhere_places, columns, tombstones, how, limit)
  local found = { ids = {}, payloads = {}, extras = {}, corrupt = {}, expired = {}, timed = {}, until_ms = {},
    without_payload = {}, known_tombstones = {}, popped = {}, left = false }
  local heads = read_heads(lists, want, found)
  if #heads == 0 then
    -- Checks the type of the key.
    redis.call('HLEN', payload)
    return found
  end
  local options = columns and columns[3]
  local payloads, count = payloads_of(payload, heads, largest, how.most, options)
  if options and limit and limit.steps then
    local fit = costs.fit(options, heads, limit)
    -- The job that does not fit is not the next one.
    if fit > count then limit.needs = nil end
    count = math.min(count, fit)
  end
  for which = #lists, 1, -1 do
    local list = lists[which]
    local popped = found.popped[list] or 0
    local back = math.min(popped, #heads - count)
    if back > 0 then
      found.popped[list], found.left = popped > back and popped - back or nil, true
      heads = { unpack(heads, 1, #heads - back) }
    end
  end
  if count == 0 then return found end
  local locked = redis.call('HMGET', locks, unpack(heads))
  local elsewhere = #elsewhere_places > 0 and terminal_of(elsewhere_places, heads) or {}
  local known = tombstones and redis.call('HMGET', tombstones, unpack(heads)) or {}
  local extra_at, seen, until_ms = {}, {}, {}
  if columns then
    local extras
    extras, until_ms = extras_of(columns, heads)
    for _, extra in ipairs(extras) do extra_at[extra[1]] = extra end
  end
  local ids, at = found.ids, 0
  for head, id in ipairs(heads) do
    local extra = extra_at[head]
    -- A job with a stored outcome has run: its entry is a tombstone.
    local has_run = extra and extra[9]
    if seen[id] or locked[head] or elsewhere[head] or has_run or known[head] and not payloads[head] then
      if known[head] then found.known_tombstones[#found.known_tombstones + 1] = id end
    else
      if not payloads[head] then
        found.without_payload[#found.without_payload + 1] = id
      elseif extra and not (count_of(extra[2]) and count_of(extra[3])) then
        found.corrupt[#found.corrupt + 1] = id
      elseif until_ms[head] and (tonumber(until_ms[head]) or 0) <= how.now_ms then
        found.expired[#found.expired + 1], found.timed[#found.timed + 1] = id, id
      else
        at = at + 1
        ids[at], found.payloads[at] = id, payloads[head]
        if until_ms[head] then found.until_ms[at] = until_ms[head] end
        if extra then
          extra[1] = at
          found.extras[#found.extras + 1] = extra
        end
      end
    end
    seen[id] = true
  end
  return found
end

-- Removes the entries that next_jobs read. Jobs with a broken counter and expired jobs fail, ids without a payload lose
-- their columns, and jobs that begin no longer expire. `since` is the column `enqueuedAt`, if it holds anything.
local function pop_jobs(found, places, how, fields, since, expires_at, expires)
  pop_heads(found)
  for _, ids in ipairs(since and { found.ids, found.corrupt, found.expired, found.without_payload } or {}) do
    if #ids > 0 then redis.call('HDEL', since, unpack(ids)) end
  end
  if #found.without_payload > 0 then remove_columns(places.columns, found.without_payload) end
  add_dropped(fields, places.meta, found.without_payload, how.now_ms)
  if #found.timed > 0 then
    redis.call('HDEL', expires_at, unpack(found.timed))
    redis.call('ZREM', expires, unpack(found.timed))
  end
  local function fail(ids, code, message, broken)
    if #ids == 0 then return end
    local values, words = {}, {}
    for at, id in ipairs(ids) do
      values[2 * at - 1], values[2 * at] = id, error_json(code, message)
      words[at] = id .. ' ' .. code .. ' ' .. brief_of(message) .. ' -'
    end
    finish(places, how, 'failed', ids, values, broken)
    add_finished(fields, broken and {} or how, 'failed', ids, words)
  end
  fail(found.corrupt, 'corrupt', 'a counter of the job is no number', true)
  fail(found.expired, 'expired', NOT_IN_TIME)
end

-- Locks the claimed jobs, and marks those that begin without a slot or do not begin.
local function hold_jobs(found, worker, fence, places, fields, news)
  local ids = found.ids
  redis.call('SADD', places.active, unpack(ids))
  lock_jobs(places.locks, worker, fence, ids)
  mark_jobs(places.early, ids, found.with_slot, found.begin, fence)
  mark_jobs(places.claimed, ids, found.begin, #ids, fence)
  if found.begin < #ids then add_words(fields, 'claimed', { unpack(ids, found.begin + 1) }) end
  news[#news + 1], news[#news + 2] = 'fence', fence + #ids - 1
end

-- When a worker must look again, ms: for the next delayed job, for a hook, or once the task or a key has rested.
-- `is_moved` says that jobs entered or left `delayed`.
local function look_at(delayed, next_due, is_moved, paused, hooks, limit, found)
  if is_moved then next_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]) end
  local rest = limit and limit.rest or math.huge
  return math.min(not paused and next_due or math.huge, hooks.next_due, rest, found.next_turn or math.huge)
end

-- Adds the event `started`, and `restarted` (id, failed runs, stalls) for jobs that ran or were delayed before. The
-- words `since` (id, dispatch time, delay) precede them, for started jobs whose id does not show when they could first
-- be claimed. `joined` has all ids as one word list, if the caller has it.
local function add_started(fields, begun, joined)
  if #begun.ids == 0 then return end
  if #begun.extras == 0 then
    add_words(fields, 'started', joined and { joined } or begun.ids)
    return
  end
  local first, again, since, extra_at = {}, {}, {}, {}
  for _, extra in ipairs(begun.extras) do extra_at[extra[1]] = extra end
  for at, id in ipairs(begun.ids) do
    local extra = extra_at[at]
    if extra and (extra[2] ~= '0' or extra[3] ~= '0' or extra[6] ~= '') then
      again[#again + 1] = id .. ' ' .. extra[2] .. ' ' .. extra[3]
    else
      first[#first + 1] = id
      local delay = extra and string.match(extra[4], '^{"delay_ms":(%d+)')
      local dispatched = extra and string.match(extra[5], '^%d+$')
      if delay or dispatched then
        since[#since + 1] = id .. ' ' .. (dispatched or '-') .. ' ' .. (delay or '0')
      end
    end
  end
  add_words(fields, 'since', since)
  add_words(fields, 'started', first)
  add_words(fields, 'restarted', again)
end
