-- Whether one of the columns holds something of the job.
local function has_columns(columns, id)
  for _, column in ipairs(columns) do
    if redis.call('HEXISTS', column, id) == 1 then return true end
  end
  return false
end

-- How a job without a place ended; nil if its columns do not show it. Only the end of a job writes a result, or the
-- errors `cancelled` and `expired`. Any other error may be that of an earlier run, so it counts only if no attempt is
-- left. A job that has still to run has `enqueuedAt`, or is in `active` or `candidates`.
local function end_of(keys, id, place, limit)
  if redis.call('HEXISTS', keys.result, id) == 1 then return 'completed' end
  local failure = object_of(redis.call('HGET', keys.errors, id) or nil)
  if failure.code == 'cancelled' then return 'cancelled' end
  if failure.code == 'expired' then return 'failed' end
  if not failure.code or place.enqueued_at or place.active or place.candidates then return nil end
  local own = object_of(redis.call('HGET', keys.options, id) or nil)
  local most = tonumber(own.attempts or type(own.retry) == 'table' and own.retry.attempts or nil) or limit
  return most and (count_of(place.attempt) or 0) >= most and 'failed' or nil
end

-- Returns the faults of each job (words of docs/wire-format.md) and its places. The caller read the lists from `began`
-- on (ms), so a job that entered its list later may be missing there. `listed` has the number of list entries of each
-- job. `spare`, in the places of a job, is how many of its list entries are tombstones.
local function faults_of(ids, listed, began, keys)
  local where = {}
  for _, name in ipairs({ 'delayed', 'completed', 'failed', 'cancelled', 'finalizing' }) do
    where[name] = redis.call('ZMSCORE', keys[name], unpack(ids))
  end
  for _, name in ipairs({ 'locks', 'cancelling', 'claimed', 'tombstones', 'attempt', 'stalled_count', 'enqueued_at',
    'outcome' }) do
    where[name] = redis.call('HMGET', keys[name], unpack(ids))
  end
  for _, name in ipairs({ 'active', 'candidates' }) do
    local found = redis.call('SMISMEMBER', keys[name], unpack(ids))
    where[name] = {}
    for at = 1, #ids do where[name][at] = found[at] == 1 end
  end
  local columns = {}
  for _, column in ipairs(keys.columns) do
    if redis.call('HLEN', column) > 0 then columns[#columns + 1] = column end
  end
  local faults, places, limit = {}, {}, tonumber(redis.call('HGET', keys.meta, 'attempts'))
  for at, id in ipairs(ids) do
    local found, place = {}, {}
    for name in pairs(where) do place[name] = where[name][at] end
    place.payload = redis.call('HEXISTS', keys.payload, id) == 1
    local ended = (place.completed and 1 or 0) + (place.failed and 1 or 0) + (place.cancelled and 1 or 0)
    local is_watched = place.active or place.candidates
    local fence = string.match(place.locks or '', ':(%d+)$')
    local is_free = place.payload and ended == 0 and not (place.locks or place.delayed or place.finalizing)
    local waits = is_free and not place.outcome
    local is_lost = waits and listed[at] == 0 and (tonumber(place.enqueued_at) or 0) < began
    local is_stray = ended > 0 and place.outcome or place.finalizing and not place.outcome
    local count = ended + (place.delayed and 1 or 0) + (place.finalizing and 1 or 0) + (place.locks and 1 or 0)
    local function add(is_so, fault)
      if is_so then found[#found + 1] = fault end
    end
    local is_left = ended > 0 or place.delayed or place.finalizing or place.locks or is_watched or place.cancelling
      or place.claimed or listed[at] ~= (tonumber(place.tombstones) or 0) or has_columns(columns, id)
    -- An ended job needs no payload, and the worker of a running job has it.
    add(not (place.payload or ended > 0 or place.locks and is_watched) and is_left, 'no_payload')
    add(place.payload and count > 1, 'two_places')
    -- A job with nothing but tombstones in the lists may have ended and lost its place.
    local has_tombstones = listed[at] > 0 and (tonumber(place.tombstones) or 0) >= listed[at]
    local may_have_ended = is_lost or waits and has_tombstones and not (place.enqueued_at or is_watched)
    place.ended = may_have_ended and end_of(keys, id, place, limit)
    add(is_lost and not place.ended or is_free and place.outcome, 'unplaced')
    add(place.ended, 'ended_unplaced')
    add(place.payload and is_watched and not place.locks, 'unlocked')
    add(place.payload and place.locks and ended == 0 and not is_watched, 'unwatched')
    add(place.payload and place.active and place.candidates, 'both_sets')
    add(place.payload and place.cancelling and not place.locks, 'stray_cancel')
    add(place.payload and place.claimed and place.claimed ~= fence, 'stray_claim')
    add(place.payload and is_stray, 'stray_hook')
    add(not (count_of(place.attempt) and count_of(place.stalled_count)), 'bad_counter')
    -- A job that moved since `began` may have been in the lists then, so its entries prove nothing.
    local moved = math.max((tonumber(fence) or 0) / 1000, tonumber(place.enqueued_at) or 0,
      tonumber(place.completed) or 0, tonumber(place.failed) or 0, tonumber(place.cancelled) or 0,
      tonumber(place.finalizing) or 0) >= began
    place.is_elsewhere = ended > 0 or place.delayed or place.locks or listed[at] > 0
    place.spare = listed[at] - (waits and listed[at] > 0 and not place.ended and 1 or 0)
    add(not moved and (tonumber(place.tombstones) or 0) ~= place.spare, 'miscounted')
    faults[at], places[at] = found, place
  end
  return faults, places
end
