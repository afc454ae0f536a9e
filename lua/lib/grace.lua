-- How long a silent job of each phase stays parked, as the task declares it ("claimed running finalizing"). In ms,
-- which matters only above the interval; math.huge if it waits for a person. Most tasks declare nothing: nil.
local function grace_of(declared)
  local claimed, running, finalizing = string.match(declared or '', '^(%S+) (%S+) (%S+)$')
  if not claimed then return nil end
  local function ms(word) return word == 'off' and math.huge or tonumber(word) or 0 end
  return { claimed = ms(claimed), running = ms(running), finalizing = ms(finalizing) }
end

-- The phase of a job that is held under this fence.
local function phase_of(fence, claimed_fence, outcome)
  return outcome and 'finalizing' or fence and claimed_fence == fence and 'claimed' or 'running'
end
