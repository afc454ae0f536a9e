-- Accounts for ticks of schedules, without writing: `row` is a schedule with its ledger, `out` what the call writes.

local function count_overlapped(row, due, out)
  row.ledger.overlapped = row.ledger.overlapped + 1
  row.words[#row.words + 1] = tick_word(due, 'o', 1)
  out.overlapped[#out.overlapped + 1] = row.name .. ' ' .. word_of(due)
end

-- The pending tick overlaps if a newer one takes its place.
local function displace(row, out)
  if row.ledger.pending then count_overlapped(row, row.ledger.pending, out) end
  row.ledger.pending, row.ledger.before = false, false
end

-- A job that exists already counts as fired, and becomes no second job.
local function fire_tick(row, tick, out)
  local ledger = row.ledger
  -- The next tick of the row is late from the end of its jitter on.
  local at = math.max(tick.due, tick.due == ledger.due and row.at or 0)
  ledger.fired, ledger.job, ledger.fired_at = ledger.fired + 1, tick.id, out.now_ms
  ledger.late = math.max(0, out.now_ms - at)
  row.words[#row.words + 1], out.fired = tick_word(tick.due, 'f', 1), out.fired + 1
  if out.exists[tick.id] then return end
  out.exists[tick.id], out.open[tick.id] = true, true
  out.jobs[#out.jobs + 1] = { id = tick.id, options = tick.options, row = row }
  out.scheduled[#out.scheduled + 1] =
    table.concat({ row.name, word_of(tick.due), tick.id, word_of(ledger.late) }, ' ')
end

-- Counts the ticks that make no job. Those that were missed come before the first that fires.
local function count_unfired(row, firing, out)
  local first, ledger, words = firing.ticks[1], row.ledger, row.words
  local newest = first and (first.previous or first.due) or firing.through
  ledger.missed, ledger.paused = ledger.missed + firing.missed, ledger.paused + firing.paused
  out.missed, out.paused = out.missed + firing.missed, out.paused + firing.paused
  if firing.missed > 0 then
    words[#words + 1] = tick_word(newest, 'm', firing.missed)
    out.runs[#out.runs + 1] = table.concat({ row.name, word_of(newest), word_of(firing.missed) }, ' ')
  end
  if firing.paused > 0 then words[#words + 1] = tick_word(newest, 'p', firing.paused) end
  if firing.at_least then ledger.at_least = '+' end
end

-- Why nothing may be fired for this call; nil if it may.
local function refusal_of(row, firing, out)
  local rule, ledger, first = row.rule, row.ledger, firing.ticks[1]
  if not row.is_known then return 'unknown' end
  if not (rule and ledger and row.has_input) then return 'unreadable' end
  if rule.digest ~= firing.digest then return 'changed' end
  if row.is_paused ~= (firing.paused > 0) then return 'changed' end
  if firing.is_pending then
    if not first or ledger.pending ~= first.due then return 'moved' end
    -- The clock may have gone back since the tick was due.
    if first.due > out.now_ms then return 'early' end
    return out.open[ledger.job] and 'early' or nil
  end
  if firing.zone < rule.zone and out.now_ms - firing.due <= 10000 then return 'older' end
  if ledger.due ~= firing.due then return 'moved' end
  local follows = not firing.next_due or firing.next_due > firing.through
  if firing.due > out.now_ms or firing.through > out.now_ms or not follows then return 'early' end
  return nil
end

-- Accounts for the ticks of one call. The last job decides about each, also one that this call writes. Returns the job
-- that the newest tick replaces.
local function account_for(row, firing, out)
  local ledger, replaced = row.ledger, nil
  if firing.is_pending then
    ledger.pending, ledger.before = false, false
    fire_tick(row, firing.ticks[1], out)
    return nil
  end
  count_unfired(row, firing, out)
  for _, tick in ipairs(firing.ticks) do
    if firing.overlap == 'allow' or not out.open[ledger.job] then
      displace(row, out)
      fire_tick(row, tick, out)
    elseif firing.overlap == 'skip' then
      count_overlapped(row, tick.due, out)
    else
      displace(row, out)
      ledger.pending, ledger.before = tick.due, tick.previous
      replaced = firing.overlap == 'replace' and ledger.job or nil
    end
  end
  ledger.last, ledger.due, row.at = firing.through, firing.next_due, firing.next_at
  row.has_new_zone, row.rule.zone = row.has_new_zone or row.rule.zone ~= firing.zone, firing.zone
  return replaced
end
