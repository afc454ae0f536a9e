-- Since when a parked job has been silent (ms), by its mark in `parked`. Returns nil without a mark, or if the job has
-- another fence or phase by now: it was not silent in between.
local function parked_since(mark, fence, phase)
  local of, since = string.match(mark or '', '^(%d+ %a+) (%d+)$')
  return of == tostring(fence) .. ' ' .. phase and tonumber(since) or nil
end

-- Returns the ids that are still parked, each once, and since when all of them have been silent (ms).
local function parked_since_of(ids, parked, locks, claimed, outcome)
  local found, taken, since = {}, {}, 0
  if #ids == 0 then return found, since end
  local marks, tokens = redis.call('HMGET', parked, unpack(ids)), redis.call('HMGET', locks, unpack(ids))
  local begins, outcomes = redis.call('HMGET', claimed, unpack(ids)), redis.call('HMGET', outcome, unpack(ids))
  for at, id in ipairs(ids) do
    local fence = string.match(tokens[at] or '', ':(%d+)$')
    local phase = phase_of(fence, begins[at], outcomes[at])
    local its = fence and not taken[id] and parked_since(marks[at], fence, phase)
    if its then found[#found + 1], taken[id], since = id, true, math.max(since, its) end
  end
  return found, since
end

-- Leaves out held jobs whose phase waits for a person, but not those with a pending cancel, unless they are finalizing.
local function without_waiting(ids, fences, grace, claimed, outcome, cancelling)
  if not grace then return ids end
  local found = {}
  for first = 1, #ids, BATCH do
    local some = { unpack(ids, first, math.min(first + BATCH - 1, #ids)) }
    local begins, outcomes = redis.call('HMGET', claimed, unpack(some)), redis.call('HMGET', outcome, unpack(some))
    local reasons = redis.call('HMGET', cancelling, unpack(some))
    for at, id in ipairs(some) do
      local phase = phase_of(fences[first + at - 1], begins[at], outcomes[at])
      if grace[phase] < math.huge or reasons[at] and phase ~= 'finalizing' then found[#found + 1] = id end
    end
  end
  return found
end

-- Parks silent jobs: moves them to `active`, for the next snapshot, with a mark that a heartbeat removes.
local function park(found, parked, candidates, active)
  if #found.parked == 0 then return end
  if #found.marks > 0 then redis.call('HSET', parked, unpack(found.marks)) end
  redis.call('SADD', active, unpack(found.parked))
  -- Last: a job in neither set would never be found.
  redis.call('SREM', candidates, unpack(found.parked))
end

-- Removes stale marks, of jobs that are not held or are held under another fence: some of them, from a random place on.
local function drop_marks(parked, locks)
  -- By pcall: without the permission the marks stay, but the decision is still reported.
  local some, ids, stale = redis.pcall('HSCAN', parked, math.random(0, 1048575), 'COUNT', 100)[2] or {}, {}, {}
  for at = 1, #some, 2 do ids[#ids + 1] = some[at] end
  if #ids == 0 then return end
  for at, token in ipairs(redis.call('HMGET', locks, unpack(ids))) do
    local fence = string.match(token or '', ':(%d+)$')
    local marked = string.match(some[2 * at], '^%d+')
    if not fence or fence ~= marked then stale[#stale + 1] = ids[at] end
  end
  if #stale > 0 then redis.call('HDEL', parked, unpack(stale)) end
end
