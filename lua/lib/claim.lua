-- The delayed jobs that are due, a bounded number of them and none when none is wanted, and when the first one is
-- due.
local function due_jobs(delayed, want, now_ms)
  local next_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
  if want == 0 or not next_due or next_due > now_ms then return {}, next_due end
  return redis.call('ZRANGEBYSCORE', delayed, '-inf', string.format('%d', now_ms), 'LIMIT', 0, BATCH), next_due
end

-- What else there may be to look at: the lists to claim from, `cancelling` where anything is in it, whether there are
-- candidates, `ghosts` where there are any, the delayed jobs that are due, and when the next one is.
local function rare_work(places, is_plain, want, now_ms)
  if is_plain then return { places.lists[2] }, nil, false, nil, {}, nil end
  return places.lists, places.cancelling, redis.call('SCARD', places.candidates) > 0,
    redis.call('HLEN', places.ghosts) > 0 and places.ghosts or nil, due_jobs(places.delayed, want, now_ms)
end

-- Puts the jobs that are due into their lists, and takes known ghosts off the heads of the lists. Returns the places in
-- which a job may be whose id a list has.
local function clear_heads(places, due, known, terminal_places, meta, now_ms)
  if #due > 0 then
    redis.call('ZREM', places.delayed, unpack(due))
    back_to_wait('RPUSH', places.lists, places.priority, due, places.waiting_since, now_ms)
  end
  if not known then return terminal_places end
  local elsewhere = { places.delayed, places.finalizing, unpack(terminal_places) }
  strip_ghosts(places.lists, known, meta, places.payload, places.locks, elsewhere, places.outcome)
  return elsewhere
end

-- What the columns hold that a run needs beside the payload, for the jobs that have any: {position, attempt,
-- stalledCount, options, dispatchedAt, deferred, recovery, 1 if it may expire, the outcome if one is stored}; and until
-- when each must begin. In place of a column that is empty `columns` has false.
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

-- The columns of the extras, false in place of one that is not among the filled ones; false when none is.
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

-- The payloads of the first of these jobs: one at least, and no more than `most` bytes together. If one is larger, its
-- size is in its place: its worker reads it apart. `largest` is what no payload of the task exceeds; only where that
-- many could be too much are the sizes asked for. Returns them and how many they are.
local function payloads_of(payload, ids, largest, most)
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

-- Reads the heads of the lists, first list first, and sorts what is there without writing: jobs that may run, jobs
-- whose counters are no numbers, those that `expired`, ids without a payload, and ids to skip (locked, elsewhere, or
-- twice in the batch). Of those that do not run `known_ghosts` has the ones that `ghosts` counts (false where it counts
-- none); `timed` are those that expired, `until_ms` has until when others must begin, by their positions. Every id that
-- was looked at is to be popped: `popped` counts them by list. `left` tells whether others stay behind.
local function next_jobs(lists, want, payload, largest, locks, elsewhere_places, columns, ghosts, now_ms, most)
  local found = { ids = {}, payloads = {}, extras = {}, corrupt = {}, expired = {}, timed = {}, until_ms = {},
    ghosts = {}, known_ghosts = {}, popped = {}, left = false }
  local heads = {}
  for _, list in ipairs(lists) do
    -- One more than there is room for.
    local room = want - #heads
    local ids = redis.call('LRANGE', list, 0, room)
    found.left = #ids > room
    local count = math.min(#ids, room)
    if count > 0 then found.popped[list] = count end
    for at = 1, count do heads[#heads + 1] = ids[at] end
    if found.left then break end
  end
  if #heads == 0 then
    -- For its type.
    redis.call('HLEN', payload)
    return found
  end
  local payloads, count = payloads_of(payload, heads, largest, most or LARGE)
  for which = #lists, 1, -1 do
    local list = lists[which]
    local popped = found.popped[list] or 0
    local back = math.min(popped, #heads - count)
    if back > 0 then
      found.popped[list], found.left = popped > back and popped - back or nil, true
      heads = { unpack(heads, 1, #heads - back) }
    end
  end
  local locked = redis.call('HMGET', locks, unpack(heads))
  local elsewhere = #elsewhere_places > 0 and terminal_of(elsewhere_places, heads) or {}
  local known = ghosts and redis.call('HMGET', ghosts, unpack(heads)) or {}
  local extra_at, seen, until_ms = {}, {}, {}
  if columns then
    local extras
    extras, until_ms = extras_of(columns, heads)
    for _, extra in ipairs(extras) do extra_at[extra[1]] = extra end
  end
  local ids, at = found.ids, 0
  for head, id in ipairs(heads) do
    local extra = extra_at[head]
    -- One with a stored outcome has run: its entry is a ghost.
    local has_run = extra and extra[9]
    if seen[id] or locked[head] or elsewhere[head] or has_run or known[head] and not payloads[head] then
      if known[head] then found.known_ghosts[#found.known_ghosts + 1] = id end
    else
      if not payloads[head] then
        found.ghosts[#found.ghosts + 1] = id
      elseif extra and not (count_of(extra[2]) and count_of(extra[3])) then
        found.corrupt[#found.corrupt + 1] = id
      elseif until_ms[head] and (tonumber(until_ms[head]) or 0) <= now_ms then
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

-- Pops what next_jobs looked at. A job with a broken counter, or whose time to begin is over, is failed, an id without
-- payload loses what is left of it. A job that begins expires no more. `since` is the column that tells since when jobs
-- wait, where it holds anything.
local function pop_jobs(found, places, how, fields, since, expires_at, expires)
  -- Not LPOP, which would hand out the ids once more.
  for list, popped in pairs(found.popped) do redis.call('LTRIM', list, popped, -1) end
  for _, ids in ipairs(since and { found.ids, found.corrupt, found.expired, found.ghosts } or {}) do
    if #ids > 0 then redis.call('HDEL', since, unpack(ids)) end
  end
  if #found.ghosts > 0 then remove_columns(places.columns, found.ghosts) end
  add_dropped(fields, places.meta, found.ghosts, how.now_ms)
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

-- The first fence of a call: past the last one, and by the clock, us, where that is further. Whatever the clock says,
-- fences stay whole numbers below 2^53, which doubles hold exactly: a clock past the year 2223 counts as that year, and
-- a last fence without room for the fences of this call as none.
local function next_fence(last, now)
  last = tonumber(last) or 0
  if not (last >= 0 and last < 2 ^ 53 - 1000) then last = 0 end
  return math.max(math.floor(last) + 1, math.min(now, 8e15))
end

-- Locks the jobs, each under a fence of its own from the first one up.
local function lock_jobs(locks, worker, fence, ids)
  local tokens = {}
  if #ids > 16 then
    -- A hash of short fields is searched from its front up to some hundred of them. One long value, which HSET sees
    -- before it writes the first, makes it a hash table.
    tokens = { ids[1], string.rep('-', 65) }
  end
  local at = #tokens
  for index, id in ipairs(ids) do
    tokens[at + 1], tokens[at + 2] = id, worker .. string.format(':%d', fence + index - 1)
    at = at + 2
  end
  redis.call('HSET', locks, unpack(tokens))
end

-- The words of the `started` event, and of `restarted` (id, failed runs, stalls) for jobs that ran or were put off
-- before. In front of them `since` (id, dispatch time, delay) for those that started and whose id alone does not tell
-- since when they could be claimed. `joined` has the ids of all of them, where they are joined already.
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
