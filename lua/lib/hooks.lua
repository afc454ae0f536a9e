-- The result of `settle_hooks` in a call without hooks.
local NO_HOOKS = { ids = {}, told = 0, left = false, wakes = false, next_due = math.huge }

-- Stores outcomes, records how hooks ran, and takes up to `wanted` due hooks for the caller. What it handles leaves
-- `out`. Returns the hooks, with the number of reported events, and whether due hooks are left.
local function settle_hooks(out, places, how, wanted, extra_columns, cancelling, fields)
  -- Inner functions, since most calls need none of them.

  -- Reads what waits for its hook, without writing. Returns ids to run, up to `wanted`; orphans, which end without a
  -- hook since the task no longer has one; and strays, which are held, or have no outcome or payload. Orphans are
  -- bounded by 512 KiB of payloads and results.
  local function due_hooks()
    local ids, orphans, strays, bytes, due = {}, {}, {}, 0, {}
    if how.has_hook and wanted > 0 then
      due = redis.call('ZRANGEBYSCORE', places.finalizing, '-inf', string.format('%d', how.now_ms), 'LIMIT', 0, wanted)
    elseif not (how.has_hook or how.hook) then
      due = redis.call('ZRANGE', places.finalizing, 0, BATCH - 1)
    end
    if #due == 0 then return ids, orphans, strays end
    local locked = redis.call('HMGET', places.locks, unpack(due))
    local stored = redis.call('HMGET', places.outcome, unpack(due))
    for at, id in ipairs(due) do
      local size = redis.call('HSTRLEN', places.payload, id)
      if locked[at] or not stored[at] or size == 0 then
        strays[#strays + 1] = id
      elseif how.has_hook then
        ids[#ids + 1] = id
      else
        bytes = bytes + size + redis.call('HSTRLEN', places.result, id)
        if bytes > LARGE and #orphans > 0 then break end
        orphans[#orphans + 1] = id
      end
    end
    return ids, orphans, strays
  end

  -- Reads the hooks to run: the value or the error in place of a payload, and the extras, at most `how.most` bytes
  -- together. A single larger one is replaced by its size.
  local function hooks_of(ids)
    local hooks, bytes = { ids = {}, payloads = {}, extras = {}, next_due = math.huge }, 0
    local texts = #ids > 0 and redis.call('HMGET', places.outcome, unpack(ids)) or {}
    for at, id in ipairs(ids) do
      local store = outcome_of(texts[at] or '') == 'completed' and places.result or places.errors
      local size = redis.call('HSTRLEN', store, id)
      bytes = bytes + (size > how.most and 0 or size)
      if at > 1 and bytes > how.most then break end
      hooks.ids[at], hooks.payloads[at] = id, size > how.most and size or redis.call('HGET', store, id) or ''
    end
    hooks.bytes = bytes
    if #hooks.ids > 0 then hooks.extras = extras_of(extra_columns, hooks.ids) end
    -- Adds the size of the payload, which may be sent with the job.
    for _, extra in ipairs(hooks.extras) do
      extra[9] = extra[9] .. ' ' .. redis.call('HSTRLEN', places.payload, hooks.ids[extra[1]])
    end
    return hooks
  end

  -- Takes jobs with a stored outcome out of the requeued and cancelled ones. Returns them: only their hook runs again.
  local function put_back()
    local ids, kinds, back, kept = {}, {}, {}, { requeue = {}, cancelled = {}, reasons = {} }
    for at, outcome in ipairs(out.requeue) do ids[#ids + 1], kinds[#kinds + 1] = outcome.id, { 'requeue', at } end
    for at, id in ipairs(out.cancelled) do ids[#ids + 1], kinds[#kinds + 1] = id, { 'cancelled', at } end
    local stored = #ids > 0 and redis.call('HMGET', places.outcome, unpack(ids)) or {}
    for index, id in ipairs(ids) do
      local group, at = kinds[index][1], kinds[index][2]
      if stored[index] then
        back[#back + 1] = id
      else
        table.insert(kept[group], out[group][at])
        if group == 'cancelled' then table.insert(kept.reasons, out.reasons[at]) end
      end
    end
    out.requeue, out.cancelled, out.reasons = kept.requeue, kept.cancelled, kept.reasons
    return back
  end

  expect_types(places.lists, {}, { places.payload, places.locks, places.claimed }, { places.finalizing })
  local taken, orphans, strays = due_hooks()
  local back = put_back()
  local now, outcomes, due, ended, told = string.format('%d', how.now_ms), {}, {}, {}, #orphans
  local fresh, retried, failed = {}, {}, {}

  -- A shrinking command first: only then a server at maxmemory accepts the others.
  redis.call('SREM', places.active, '', unpack(out.all))
  if #orphans > 0 then redis.call('ZREM', places.finalizing, unpack(orphans)) end
  if #strays > 0 then redis.call('ZREM', places.finalizing, unpack(strays)) end
  -- A cancel requested after the outcome is too late, even if its caller does not know the outcome.
  if #out.all > 0 then redis.call('HDEL', cancelling, unpack(out.all)) end
  for _, group in ipairs({ out.completed, out.failed, out.cancelled }) do
    for _, one in ipairs(how.hook and group or {}) do fresh[#fresh + 1] = one.id or one end
  end
  if how.hook then
    record_ends(out, places, how, fields)
    out.completed, out.failed, out.cancelled = {}, {}, {}
  end
  for _, id in ipairs(back) do due[#due + 1], due[#due + 2] = now, id end
  add_words(fields, 'requeued', back)
  for _, outcome in ipairs(out.hook_retry) do
    local id, delay = outcome.id, string.match(outcome.detail, '^%d+')
    local kind, _, stalls, ran = outcome_of(redis.call('HGET', places.outcome, id) or '')
    outcomes[#outcomes + 1], outcomes[#outcomes + 2] = id, table.concat({ kind, outcome.attempt, stalls, ran }, ' ')
    due[#due + 1], due[#due + 2] = string.format('%d', how.now_ms + delay), id
    retried[#retried + 1] = id .. ' ' .. outcome.attempt .. ' ' .. outcome.detail
  end
  await_hooks(places, outcomes, due)
  add_words(fields, 'hook_retrying', retried)
  for _, outcome in ipairs(out.hooked) do
    ended[#ended + 1] = outcome.id
    if outcome.detail ~= '' then failed[#failed + 1] = outcome.id .. ' ' .. outcome.detail end
  end
  add_words(fields, 'hook_failed', failed)
  count_failed_hooks(places.meta, #failed, how.now_ms)
  end_finalized(places, how, ended, fields)
  end_finalized(places, how, orphans, fields)
  out.ended = out.ended + #ended + #orphans
  for _, id in ipairs(fresh) do
    if how.has_hook and #taken < wanted then taken[#taken + 1] = id end
  end
  local hooks = hooks_of(taken)
  if #hooks.ids > 0 then redis.call('ZREM', places.finalizing, unpack(hooks.ids)) end
  hooks.told, hooks.ended = told + #failed, #ended + #orphans > 0
  local first_due = tonumber(redis.call('ZRANGE', places.finalizing, 0, 0, 'WITHSCORES')[2]) or math.huge
  hooks.left = first_due <= how.now_ms
  hooks.wakes = hooks.left and (how.has_hook or #fresh + #back + #orphans > 0)
  if how.has_hook then hooks.next_due = first_due end
  return hooks
end

-- How many jobs are wanted besides the hooks: none if the hooks are large. Hooks take slots of `room` too.
local function less(want, room, hooks)
  local count = #hooks.ids
  if room then room.begin, room.with_slot = math.max(0, room.begin - count), math.max(0, room.with_slot - count) end
  return count > 0 and hooks.bytes > LARGE / 2 and 0 or math.max(0, want - count)
end

-- Puts the hooks before the other claimed jobs.
local function lead_with(hooks, found)
  local count = #hooks.ids
  if count == 0 then return found end
  local all = { ids = hooks.ids, payloads = hooks.payloads, extras = hooks.extras, begin = found.begin + count,
    with_slot = found.with_slot + count }
  for at, id in ipairs(found.ids) do all.ids[count + at], all.payloads[count + at] = id, found.payloads[at] end
  for _, extra in ipairs(found.extras) do
    all.extras[#all.extras + 1] = { extra[1] + count, unpack(extra, 2) }
  end
  return all
end
