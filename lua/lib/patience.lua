-- How long a silent job of each phase is let be, by what the task declares of it ("claimed running finalizing"): in ms,
-- where that is longer than the interval, and math.huge where it waits for a person. nil for most tasks.
local function patience_of(declared)
  local claimed, running, finalizing = string.match(declared or '', '^(%S+) (%S+) (%S+)$')
  if not claimed then return nil end
  local function ms(word) return word == 'off' and math.huge or tonumber(word) or 0 end
  return { claimed = ms(claimed), running = ms(running), finalizing = ms(finalizing) }
end

-- The phase of a job that is held under the fence.
local function phase_of(fence, claimed_fence, outcome)
  return outcome and 'finalizing' or fence and claimed_fence == fence and 'claimed' or 'running'
end
