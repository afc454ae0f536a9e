-- The limits of a whole task. `limits` of `meta` has three numbers: how many jobs may run (0: any number), and how many
-- may start within how many us (0: no rate). The lock of a held job is its slot: nothing else counts running jobs.

-- How many jobs run: those held, except hooks, and except the jobs that this call lets go.
local function count_running(places, out, hooks, has_outcomes)
  local running = redis.call('HLEN', places.locks) - #out.all
  if not has_outcomes then return running end
  local of_hooks = redis.call('HLEN', places.outcome) - redis.call('ZCARD', places.finalizing) - #hooks.ids
  return running - math.max(0, of_hooks)
end

-- Reads the limits of a claim, without writing. Returns nil if there are none.
local function limit_of(task, out, hooks, places, has_outcomes, now, now_ms)
  local most, rate, window = string.match(task.limits or '', '^(%d+) (%d+) (%d+)$')
  local limit = { full = task.full or nil, most = tonumber(most) or 0, rate = tonumber(rate) or 0,
    window = tonumber(window), starts = task.starts or '' }
  limit.rest, limit.length = rest_of(task.full, now_ms)
  limit.mark = limit.rest and string.match(task.full, ' handler$') or ''
  local asked = asked_rest(out, places, now)
  if asked > 0 and now_ms + asked > (limit.rest or 0) then
    limit.rest, limit.length, limit.mark = now_ms + asked, asked, ' handler'
  end
  if not (most or limit.full or limit.rest) then return nil end
  if limit.most > 0 then limit.running = count_running(places, out, hooks, has_outcomes) end
  if limit.rate > 0 then
    limit.this_step = step_of(limit.window, now)
    limit.steps, limit.used = steps_within(limit.starts, limit.window, limit.this_step, now)
  end
  return limit
end

-- How many of the wanted jobs may be claimed. With a limit or keys none is claimed ahead: it would take the slot of
-- another.
local function within(limit, want, room, keyed)
  if room and (keyed or limit and limit.most + limit.rate > 0) then
    want, room.begin = math.min(want, room.with_slot), math.min(room.begin, room.with_slot)
  end
  if not limit then return want end
  if limit.rest then return 0 end
  if limit.running then want = math.min(want, limit.most - limit.running) end
  if limit.steps then want = math.min(want, limit.rate - limit.used) end
  return math.max(0, want)
end

-- Adds what a claim of these jobs changes in `meta`. Returns whether no further job may be claimed now. It let
-- `expired` more jobs go.
local function note_limit(limit, found, expired, meta, news, now_ms)
  if not limit then return false end
  local steps, taken = limit.steps, #found.ids
  if steps then
    local starts = costs.starts(found, limit.rate)
    add_starts(steps, limit.this_step, starts)
    local words = words_of_steps(steps)
    if words ~= limit.starts then news[#news + 1], news[#news + 2] = 'starts', words end
    local needs = costs.missing(limit, steps.used)
    if needs and not limit.rest then
      limit.rest = rest_until(steps, limit.window, limit.rate, needs)
      limit.length = limit.rest - now_ms
    end
  end
  local full = limit.rest and string.format('%d %d', limit.rest, limit.length) .. limit.mark
    or limit.running and limit.running - expired + taken >= limit.most and 'running' or nil
  return put_full(full, limit.full, meta, news)
end

-- Whether another worker must look, although no job may be claimed now: the caller has no free slot, so it will not
-- look when the rest is over. The other worker learns until when the task, or a key, rests.
local function passes_on(limit, asked, found)
  return (limit and limit.rest or found.is_resting) and #found.ids >= asked
end
