-- A job that is claimed ahead waits in its worker. It is held, and `claimed` has its fence until it begins. A field
-- with another fence than the lock means nothing.
--
-- A job may begin early, before it has a slot. Redis does not learn when its handler starts. So `early` has its fence,
-- until the job is let go or has not begun after all: if its worker crashes, the handler may not have run.

-- Whether jobs begin, or leave that may not have begun.
local function moves_marks(out)
  return #out.begins + #out.unstart + #out.requeue + #out.cancelled + #out.drop > 0
end

-- If no job of the task may begin without a slot, jobs claimed now wait, and jobs claimed before are requeued and taken
-- back from their worker. Returns 2 in that case, else 0.
local function begin_none_early(out, room, meta)
  if out.early == 0 and not (room and room.begin > room.with_slot) then return 0 end
  if allows_early(meta) then return 0 end
  if room then room.begin = math.min(room.begin, room.with_slot) end
  for at = #out.begins - out.early + 1, #out.begins do
    local id, fence = out.begins[at], out.begin_fences[at]
    out.all[#out.all + 1], out.taken[#out.taken + 1] = id, fence
    out.requeue[#out.requeue + 1] = { id = id, attempt = '0', detail = '', error = '', fence = fence }
  end
  for _ = 1, out.early do
    table.remove(out.begins)
    table.remove(out.begin_fences)
  end
  out.early = 0
  return 2
end

-- Decides which jobs begin in this call, without writing. Jobs claimed before begin, unless the task is paused; expired
-- ones fail and are taken back. Jobs claimed now begin in order, up to `room`: `found.begin`. A job that allows no
-- stall, was held by a worker that crashed, or may expire begins only with a slot. Returns the ids and extras of all
-- that begin.
local function begun_jobs(out, found, room, columns, max_count, expires_at, extra_columns, paused, now_ms)
  local ids, begins, early = found.ids, {}, out.begun_early
  found.begin = room and math.min(room.begin, #ids) or #ids
  found.with_slot = room and room.with_slot or #ids
  if room and room.with_slot < found.begin then
    local bounds, stalled = {}, {}
    if columns[max_count] then bounds = redis.call('HMGET', max_count, unpack(ids, 1, found.begin)) end
    for _, extra in ipairs(found.extras) do stalled[extra[1]] = extra[3] ~= '0' or has_crashed(extra[7]) end
    for at = room.with_slot + 1, found.begin do
      if bounds[at] == '0' or stalled[at] or found.until_ms[at] then
        found.begin = at - 1
        break
      end
    end
  end
  for at in pairs(found.until_ms) do
    if at <= found.begin then found.timed[#found.timed + 1] = ids[at] end
  end
  if #out.begins == 0 then
    return found.begin == #ids and found or { ids = { unpack(ids, 1, found.begin) }, extras = found.extras }
  end
  local until_ms = columns[expires_at] and redis.call('HMGET', expires_at, unpack(out.begins)) or {}
  for at, id in ipairs(out.begins) do
    local expired = until_ms[at] and (tonumber(until_ms[at]) or 0) <= now_ms
    if expired then
      out.all[#out.all + 1], out.taken[#out.taken + 1] = id, out.begin_fences[at]
      found.expired[#found.expired + 1], out.expired = id, out.expired + 1
    elseif not paused then
      begins[#begins + 1] = id
      if at > #out.begins - out.early then early[#early + 1], early[#early + 2] = id, out.begin_fences[at] end
    end
    if until_ms[at] and (expired or not paused) then found.timed[#found.timed + 1] = id end
  end
  out.begins = begins
  local begun = { ids = { unpack(begins) }, extras = {} }
  if #begins > 0 and extra_columns then begun.extras = extras_of(extra_columns, begins) end
  for at = 1, found.begin do begun.ids[#begins + at] = ids[at] end
  for _, extra in ipairs(found.extras) do
    begun.extras[#begun.extras + 1] = { extra[1] + #begins, unpack(extra, 2) }
  end
  return begun
end
