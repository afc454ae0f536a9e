-- A rate holds for each window, wherever it begins. The starts of the last window are stored in 32 steps. A step is its
-- end, us, and a count. A start counts for a window from the end of its step. The text is the sum of all counts, the
-- newest step, `|`, and the older steps, the oldest first. So a claim reads only the steps that it adds to or removes.

-- Adds starts to the step that ends then, which is the newest.
local function add_starts(steps, over, count)
  if count == 0 then return end
  if steps.over ~= over and steps.count > 0 then
    steps.older, steps.count = steps.older .. string.format('%d %d ', steps.over, steps.count), 0
  end
  steps.over, steps.count, steps.used = over, steps.count + count, steps.used + count
end

-- Returns the steps that still count, and how many starts they have. A step that ends after this one, since the clock
-- went back, counts as this one: it must not count for longer. Then, and if the text is of another kind, all are read.
local function steps_within(starts, window, this_step, now)
  local steps = { used = 0, over = 0, count = 0, older = '' }
  local used, over, count, at = string.match(starts or '', '^(%d+) (%d+) (%d+)|()')
  if over and tonumber(over) <= this_step then
    if tonumber(over) + window <= now then return steps, 0 end
    steps.used, steps.over, steps.count = tonumber(used), tonumber(over), tonumber(count)
    while true do
      local _, last, old_over, old_count = string.find(starts, '^(%d+) (%d+) ', at)
      if not last or tonumber(old_over) + window > now then break end
      steps.used, at = steps.used - tonumber(old_count), last + 1
    end
    steps.older = string.sub(starts, at)
    return steps, steps.used
  end
  local pairs_of = over and string.sub(starts, at) .. over .. ' ' .. count or starts or ''
  for old_over, old_count in string.gmatch(pairs_of, '(%d+) (%d+)') do
    local ends = math.min(tonumber(old_over), this_step)
    if ends + window > now then add_starts(steps, ends, tonumber(old_count)) end
  end
  return steps, steps.used
end

-- The text of the steps, as it is stored.
local function words_of_steps(steps)
  return steps.used == 0 and '' or string.format('%d %d %d|', steps.used, steps.over, steps.count) .. steps.older
end

-- Until when enough of the starts no longer count, so that `needs` more may start, ms.
local function rest_until(steps, window, rate, needs)
  local over, used = steps.over, steps.used
  for old_over, count in string.gmatch(steps.older, '(%d+) (%d+)') do
    used = used - tonumber(count)
    if used + needs <= rate then
      over = tonumber(old_over)
      break
    end
  end
  return math.ceil((over + window) / 1000)
end

-- The end of the step of this window that includes now, us.
local function step_of(window, now)
  local step = math.ceil(window / 32)
  return (math.floor(now / step) + 1) * step
end
