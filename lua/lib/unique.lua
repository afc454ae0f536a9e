-- A unique key belongs to one job. Its entry in `unique` is words: the job, its mode (done, started or period), until
-- (ms), when it was written (ms), and the last 8 calls that wrote it. Until is the end of the period, or when a
-- debounced job can be postponed no longer; else 0. A call has three words: its id, its answer, and the job (`-`: named
-- like the call). Whether an entry blocks its key depends on the state of its job: what a fault left blocks nothing.

-- Parses an entry. Returns nil if there is none or it is unreadable: then the key is free.
local function entry_of(text)
  local id, mode, over, at, calls = string.match(text or '', '^(%S+) (%l+) (%d+) (%d+)(.*)$')
  return id and { id = id, mode = mode, over = tonumber(over), at = tonumber(at), calls = calls } or nil
end

-- The text of an entry, with one more call and its answer if given.
local function text_of_entry(entry, now_ms, call, answer, id)
  local calls = {}
  for known, word, job in string.gmatch(entry.calls, '(%S+) (%S+) (%S+)') do
    calls[#calls + 1] = known .. ' ' .. word .. ' ' .. job
  end
  if call then calls[#calls + 1] = call .. ' ' .. answer .. ' ' .. (id == call and '-' or id) end
  return table.concat({ entry.id, entry.mode, string.format('%d', entry.over), string.format('%d', now_ms),
    unpack(calls, math.max(1, #calls - 7)) }, ' ')
end

-- The answer that a call got before, and its job; nil for a new call.
local function answer_of(entry, call)
  for known, word, job in string.gmatch(entry.calls, '(%S+) (%S+) (%S+)') do
    if known == call then return word, job == '-' and call or job end
  end
end

-- Whether a job in this state has not begun, or waits for its next run.
local function is_pending(state)
  return state == 'waiting' or state == 'delayed' or state == 'claimed'
end

-- Whether the entry blocks its key while its job is in this state.
local function is_blocking(entry, state, now_ms)
  if entry.mode == 'period' then return now_ms < entry.over end
  if entry.mode == 'started' then return is_pending(state) end
  return is_pending(state) or state == 'running' or state == 'finalizing'
end

-- Jobs that a person retries get their keys back. Returns a table with the job that has the key, by the job that may
-- not run; the entries to write, {key, text ..}; and, with `anyway`, the jobs that run without their key.
local function keys_of_retried(places, unique, unique_of, ids, anyway, now_ms)
  local others, entries, keyless, taken = {}, {}, {}, {}
  local names = #ids > 0 and redis.call('HLEN', unique_of) > 0 and redis.call('HMGET', unique_of, unpack(ids)) or {}
  for at, id in ipairs(ids) do
    local key = names[at]
    local entry = key and (taken[key] or entry_of(redis.call('HGET', unique, key)))
    local is_other = entry and entry.id ~= id
    if is_other and (taken[key]
      or is_blocking(entry, states_of(places.payload, places.locks, places, { entry.id })[1], now_ms)) then
      if anyway then keyless[#keyless + 1] = id else others[id] = entry.id end
    elseif key then
      if is_other and entry.mode ~= 'period' then entry.over = 0 end
      taken[key] = entry or { mode = 'done', over = 0, calls = '' }
      taken[key].id = id
      entries[#entries + 1], entries[#entries + 2] = key, text_of_entry(taken[key], now_ms)
    end
  end
  return others, entries, keyless
end
