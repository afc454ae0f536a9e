-- Reads a page of the jobs in one state, with their small columns. Changes nothing.
-- Uses     states spare lane_id page
-- KEYS[1]  place        (zset)    delayed, completed, failed or cancelled
-- KEYS[2]  wait:high    (list)    ids
-- KEYS[3]  wait         (list)    ids
-- KEYS[4]  wait:low     (list)    ids
-- KEYS[5]  locks        (hash)    id -> token
-- KEYS[6]  tombstones   (hash)    id -> number of list entries whose job no longer waits there
-- KEYS[7]  attempt      (hash)    column
-- KEYS[8]  stalledCount (hash)    column
-- KEYS[9]  error        (hash)    column
-- KEYS[10] maxCount     (hash)    column
-- KEYS[11] priority     (hash)    column
-- KEYS[12] dispatchedAt (hash)    column
-- KEYS[13] enqueuedAt   (hash)    column
-- KEYS[14] candidates   (set)     running ids silent since the snapshot
-- KEYS[15] payload      (hash)    column
-- KEYS[16] delayed      (zset)    ids by due time, ms
-- KEYS[17] completed    (zset)    ids by finish time, ms
-- KEYS[18] failed       (zset)    ids by finish time, ms
-- KEYS[19] cancelled    (zset)    ids by finish time, ms
-- KEYS[20] claimed      (hash)    id -> fence of a held job that has not begun
-- KEYS[21] outcome      (hash)    column
-- KEYS[22] finalizing   (zset)    ids whose hook has to run, by due time, ms
-- KEYS[23] lanes        (zset)    entries of waiting jobs with keys: see lib/lanes.lua
-- ARGV[1]  state        (waiting, claimed, running, finalizing, or that of the place)
-- ARGV[2]  newest       (1: newest first, or the lists from the back; else oldest first, or in claim order)
-- ARGV[3]  cursor       (of the page before; '' for the first page)
-- ARGV[4]  look         (about how many jobs to look at)
-- ARGV[5]  least        (score, ms, or -inf)
-- ARGV[6]  most         (score, ms, or +inf)
-- ARGV[7]  code         (of the error; '' for any)
-- ARGV[8]  text         (part of the error's message, escaped as in JSON; '' for any)
-- Returns  {'page', next cursor ('': the end), number looked at, rows: id, stamp, cursor after this job, code of the
--          error, 1,024 bytes of the error's JSON from its message on, attempt, stalledCount, maxCount, priority,
--          dispatchedAt, enqueuedAt, 1 for a candidate else 0}; what is not set is ''
-- Emits    nothing
-- Refuses  WRONGTYPE
local state, newest, cursor, look, code, text = ARGV[1], ARGV[2] == '1', ARGV[3], tonumber(ARGV[4]), ARGV[7], ARGV[8]
local is_held = state == 'claimed' or state == 'running' or state == 'finalizing'
local rows = state == 'claimed' and claimed or state == 'finalizing' and outcome or locks
local stamps, cursors, ids, next_cursor = {}, {}
if state == 'waiting' then
  local page = newest and waiting_page_from_back or waiting_page
  if string.sub(cursor, 1, 1) == 'l' then
    ids, cursors, next_cursor = lanes_page(lanes, newest, cursor, look)
  else
    ids, cursors, next_cursor = page({ wait_high, wait, wait_low }, cursor, look)
    if next_cursor == '' and redis.call('ZCARD', lanes) > 0 then next_cursor = 'l -' end
  end
elseif is_held then
  ids, stamps, next_cursor = held_page(rows, cursor, look)
else
  ids, stamps, next_cursor = ordered_page(place, newest, cursor, look, ARGV[5], ARGV[6])
end
-- Whether the message of the error contains the text. It ends at the first quote without a backslash.
local function has_text(failure, wanted)
  local _, begins = string.find(failure, '"message":"', 1, true)
  local found = begins and string.find(failure, wanted, begins + 1, true)
  if not found then return false end
  local ends = begins
  repeat
    ends = string.find(failure, '["\\]', ends + 1)
    local is_escape = ends and string.byte(failure, ends) == 92
    if is_escape then ends = ends + 1 end
  until not is_escape
  return not ends or found < ends
end
-- JSON that scripts wrote has a backslash before each slash.
local escaped = string.gsub(text, '/', '\\/')
local reply = { 'page', next_cursor, #ids, {} }
if #ids == 0 then return reply end
local failures, spare = redis.call('HMGET', errors, unpack(ids)), {}
if state == 'waiting' then
  spare = spare_of(ids, tombstones, payload, locks,
    { completed = completed, failed = failed, cancelled = cancelled, delayed = delayed, finalizing = finalizing })
end
if is_held then
  -- The fence in the lock decides; the tokens are the stamps. A finalizing job need not be held.
  local marks = redis.call('HLEN', claimed) > 0 and redis.call('HMGET', claimed, unpack(ids)) or {}
  local stored = redis.call('HLEN', outcome) > 0 and redis.call('HMGET', outcome, unpack(ids)) or {}
  local due = state == 'finalizing' and redis.call('ZMSCORE', finalizing, unpack(ids)) or {}
  stamps = redis.call('HMGET', locks, unpack(ids))
  for at = 1, #ids do
    local is_claimed = stamps[at] and marks[at] and marks[at] == string.match(stamps[at], ':(%d+)$') or false
    local actual = stored[at] and 'finalizing' or is_claimed and 'claimed' or stamps[at] and 'running'
    stamps[at] = stamps[at] or due[at]
    spare[at] = not stamps[at] or actual ~= state
  end
end
local values = {}
for which, column in ipairs({ attempt, stalled_count, max_count, priority, dispatched_at, enqueued_at }) do
  values[which] = redis.call('HLEN', column) > 0 and redis.call('HMGET', column, unpack(ids)) or {}
end
for at, id in ipairs(ids) do
  local failure = failures[at] or ''
  local fits = (code == '' or string.find(failure, '"code":"' .. code .. '"', 1, true))
    and (text == '' or has_text(failure, text) or escaped ~= text and has_text(failure, escaped))
  if fits and not spare[at] then
    local stamp = stamps[at] or ''
    local _, begins = string.find(failure, '"message":"', 1, true)
    local brief = string.sub(failure, (begins or 0) + 1, (begins or 0) + 1024)
    local cursor_here = cursors[at] or not is_held and stamp .. ' ' .. id or ''
    local row = { id, stamp, cursor_here, string.match(failure, '"code":"([^"]*)"') or '', brief }
    for which = 1, 6 do row[#row + 1] = values[which][at] or '' end
    row[#row + 1] = is_held and redis.call('SISMEMBER', candidates, id) == 1 and '1' or '0'
    table.insert(reply[4], row)
  end
end
return reply
