-- What a dispatch with `replace` or `debounce` does to the job that has its unique key.

-- Gives a job that waits a new input and the options of this dispatch (ARGV from `at`: triples column, index, value).
-- It keeps its place, and loses what its earlier runs left (`ran`). Returns the values of the triples by column.
local function renew_job(at, id, input, columns, ran, now_ms)
  local own = {}
  for triple = at, #ARGV, 3 do own[ARGV[triple]] = ARGV[triple + 2] end
  redis.call('HSET', columns.payload, id, input)
  remove_columns(ran, { id })
  for _, column in ipairs({ 'options', 'maxCount' }) do
    if own[column] then
      redis.call('HSET', columns[column], id, own[column])
    else
      redis.call('HDEL', columns[column], id)
    end
  end
  if own.expires then
    local expires, over = columns.expires, string.format('%d', now_ms + own.expires)
    redis.call('ZADD', expires, over, id)
    redis.call('HSET', columns.expiresAt, id, over)
  else
    redis.call('HDEL', columns.expiresAt, id)
  end
  return own
end

-- Postpones a delayed job: by `delay` from now, but not past `over` (ms). Nothing makes it due earlier.
local function postpone(delayed, id, delay, over, now_ms)
  redis.call('ZADD', delayed, 'XX', 'GT', string.format('%d', math.min(now_ms + delay, over)), id)
end

-- Refuses the call before the first write if our user may not end a claimed job.
local function must_be_allowed_to_end(places)
  must_be_allowed_all('HDEL', { places.locks, places.claimed, places.cancelling, places.parked })
  must_be_allowed_all('SREM', { places.active, places.candidates })
  must_be_allowed_all('ZADD', { places.cancelled, places.finalizing })
  must_be_allowed_all('HSET', { places.errors, places.outcome })
  must_be_allowed_all('HDEL EXISTS', places.columns)
end

-- Ends a job that was claimed and has not begun. Its worker learns at its next call that it does not hold the job.
local function end_claimed(places, how, id)
  unlock({ places.locks, places.claimed, places.cancelling, places.parked }, { places.active, places.candidates }, id)
  local why = error_json('replaced', 'a dispatch with the same unique key replaced it')
  finish(places, how, 'cancelled', { id }, { id, why })
end
