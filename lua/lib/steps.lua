-- A rate holds for each window, wherever it begins. The starts of the last window are stored in 32 steps. A step is its
-- end, us, and a count. A start counts for a window from the end of its step. The text is the sum of all counts, the
-- newest step, the end of the oldest one and `|`; then for each older step its count and the time to the end of the
-- next one. So a claim reads only the steps that it adds to or removes. The text is short, since Lua hashes every byte.

-- Adds starts to the step that ends then, which is the newest.
local function add_starts(steps, over, count)
  if count == 0 then return end
  if steps.count == 0 then
    steps.first = over
  elseif steps.over ~= over then
    steps.older, steps.count = steps.older .. string.format('%d %d ', steps.count, over - steps.over), 0
  end
  steps.over, steps.count, steps.used = over, steps.count + count, steps.used + count
end

-- Returns the steps that still count, and how many starts they have. A step that ends after this one, since the clock
-- went back, counts as this one: it must not count for longer.
local function steps_within(starts, window, this_step, now)
  local steps = { used = 0, over = 0, count = 0, first = 0, older = '' }
  local used, over, count, first, at = string.match(starts or '', '^(%d+) (%d+) (%d+) (%d+)|()')
  over, first = tonumber(over), tonumber(first)
  if not over or over + window <= now then return steps, 0 end
  if over <= this_step then
    steps.used, steps.over, steps.count, steps.first = tonumber(used), over, tonumber(count), first
    while steps.first + window <= now do
      local _, last, older, gap = string.find(starts, '^(%d+) (%d+) ', at)
      if not last then break end
      steps.used, steps.first, at = steps.used - tonumber(older), steps.first + tonumber(gap), last + 1
    end
    steps.older = string.sub(starts, at)
    return steps, steps.used
  end
  for older, gap in string.gmatch(string.sub(starts, at), '(%d+) (%d+) ') do
    if first + window > now then add_starts(steps, math.min(first, this_step), tonumber(older)) end
    first = first + tonumber(gap)
  end
  add_starts(steps, this_step, tonumber(count))
  return steps, steps.used
end

-- The text of the steps, as it is stored.
local function words_of_steps(steps)
  if steps.used == 0 then return '' end
  return string.format('%d %d %d %d|', steps.used, steps.over, steps.count, steps.first) .. steps.older
end

-- Until when enough of the starts no longer count, so that `needs` more may start, ms.
local function rest_until(steps, window, rate, needs)
  local over, used = steps.first, steps.used
  for count, gap in string.gmatch(steps.older, '(%d+) (%d+) ') do
    used = used - tonumber(count)
    if used + needs <= rate then break end
    over = over + tonumber(gap)
  end
  return math.ceil((over + window) / 1000)
end

-- The end of the step of this window that includes now, us.
local function step_of(window, now)
  local step = math.ceil(window / 32)
  return (math.floor(now / step) + 1) * step
end
