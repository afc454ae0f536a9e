-- The limits of a whole task. `limits` of `meta` has three numbers: how many jobs may run (0: any number), and how many
-- may start within how many us (0: no rate). The lock of a held job is its slot: nothing else counts running jobs.
--
-- A rate holds for each window, wherever it begins. `starts` of `meta` has the starts of the last window, in 32 steps:
-- pairs of the end of a step, us, and a count. A start counts for a window from the end of its step.

-- The steps of a window.
local STEPS = 32

-- Returns the steps that still count, and how many starts they have. A step that ends after this one, since the clock
-- went back, counts as this one: it must not count for longer.
local function steps_within(starts, window, this_step, now)
  local steps, used = {}, 0
  for over, count in string.gmatch(starts or '', '(%d+) (%d+)') do
    over, count = math.min(tonumber(over), this_step), tonumber(count)
    local last = steps[#steps]
    if last and last.over == over then
      last.count, used = last.count + count, used + count
    elseif over + window > now then
      steps[#steps + 1], used = { over = over, count = count }, used + count
    end
  end
  return steps, used
end

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
  if out.rest > 0 and now_ms + out.rest > (limit.rest or 0) then
    limit.rest, limit.length, limit.mark = now_ms + out.rest, out.rest, ' handler'
  end
  if not (most or limit.full or limit.rest) then return nil end
  if limit.most > 0 then limit.running = count_running(places, out, hooks, has_outcomes) end
  if limit.rate > 0 then
    local step = math.ceil(limit.window / STEPS)
    limit.this_step = (math.floor(now / step) + 1) * step
    limit.steps, limit.used = steps_within(limit.starts, limit.window, limit.this_step, now)
  end
  return limit
end

-- How many of the wanted jobs may be claimed. With a limit none is claimed ahead: it would take the slot of another.
local function within(limit, want, room)
  if not limit then return want end
  if room and limit.most + limit.rate > 0 then
    want, room.begin = math.min(want, room.with_slot), math.min(room.begin, room.with_slot)
  end
  if limit.rest then return 0 end
  if limit.running then want = math.min(want, limit.most - limit.running) end
  if limit.steps then want = math.min(want, limit.rate - limit.used) end
  return math.max(0, want)
end

-- Adds what a claim of `taken` jobs changes in `meta`. Returns whether no further job may be claimed now. It let
-- `expired` more jobs go.
local function note_limit(limit, taken, expired, meta, news, now_ms)
  if not limit then return false end
  local steps, words = limit.steps, {}
  if steps then
    local last = steps[#steps]
    if taken > 0 and last and last.over == limit.this_step then
      last.count = last.count + taken
    elseif taken > 0 then
      steps[#steps + 1] = { over = limit.this_step, count = taken }
    end
    for at, step in ipairs(steps) do words[at] = string.format('%d %d', step.over, step.count) end
    words = table.concat(words, ' ')
    if words ~= limit.starts then news[#news + 1], news[#news + 2] = 'starts', words end
    if not limit.rest and limit.used + taken >= limit.rate then
      limit.rest = math.ceil((steps[1].over + limit.window) / 1000)
      limit.length = limit.rest - now_ms
    end
  end
  local full = limit.rest and string.format('%d %d', limit.rest, limit.length) .. limit.mark
    or limit.running and limit.running - expired + taken >= limit.most and 'running' or nil
  return put_full(full, limit.full, meta, news)
end

-- Whether another worker must look, although no job may be claimed now: the caller has no free slot, so it will not
-- look when the rest is over. The other worker learns until when the task rests.
local function passes_on(limit, asked, taken)
  return limit and limit.rest and taken >= asked
end
