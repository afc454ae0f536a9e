-- The delay in ms after this number of failed runs, by a retry policy in the format of docs/wire-format.md and the
-- rules of options/retry.rs. An unreadable policy counts as the default.
local function backoff_ms(policy, failed)
  local LONGEST = 315360000000
  local function delay_of(own)
    local backoff = own.backoff or { exponential = { first_ms = 1000, factor = 2 } }
    local delay
    if backoff.fixed then
      delay = backoff.fixed.delay_ms
    else
      local first, factor = backoff.exponential.first_ms, backoff.exponential.factor
      local most = own.max_delay_ms or math.max(first, 600000)
      delay = first == 0 and 0 or math.min(first * factor ^ (math.min(failed, 10000) - 1), most)
    end
    delay = math.max(0, math.min(delay, LONGEST))
    if own.jitter ~= 'none' then delay = delay + math.random() * delay end
    return string.format('%d', math.ceil(delay))
  end
  local ok, delay = pcall(delay_of, policy)
  return ok and delay or delay_of({})
end
