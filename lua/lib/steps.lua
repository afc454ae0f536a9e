-- A rate holds for each window, wherever it begins. The starts of the last window are stored in 32 steps: pairs of the
-- end of a step, us, and a count. A start counts for a window from the end of its step.

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

-- Adds starts to the steps. Returns the words of all steps, as they are stored.
local function words_of_steps(steps, this_step, taken)
  local last, words = steps[#steps], {}
  if taken > 0 and last and last.over == this_step then
    last.count = last.count + taken
  elseif taken > 0 then
    steps[#steps + 1] = { over = this_step, count = taken }
  end
  for at, step in ipairs(steps) do words[at] = string.format('%d %d', step.over, step.count) end
  return table.concat(words, ' ')
end

-- Until when enough of the starts no longer count, so that `needs` more may start, ms.
local function rest_until(steps, window, used, rate, needs)
  local over = 0
  for _, step in ipairs(steps) do
    over, used = step.over, used - step.count
    if used + needs <= rate then break end
  end
  return math.ceil((over + window) / 1000)
end

-- The end of the step of this window that includes now, us.
local function step_of(window, now)
  local step = math.ceil(window / 32)
  return (math.floor(now / step) + 1) * step
end
