-- Writes everything that is buffered, and puts the opened nodes that are not dispatched into the outbox. Then reports
-- the buffered events in one entry, and counts what could not be read.
local function write_and_report(keys, opened, now_ms)
  for at = 1, opened and #opened or 0 do
    -- A node may have ended in the call that opened it. flow_start has not read the states.
    local send = opened[at]
    if is_open(known_value('nodes', send.name) or 'o') then note(now_ms, 's ' .. send.mark) end
  end
  write_waiting()
  write_all(keys)
  local meta, fields, count = keys.meta, {}, 0
  if keys.by and keys.by ~= '' then add_words(fields, 'by', { keys.by }) end
  for _, kind in ipairs({ 'started', 'node', 'paused', 'resumed', 'ended' }) do
    local words = keys.told and keys.told[kind] or {}
    add_words(fields, kind, words)
    count = count + #words
  end
  if keys.corrupt then
    local now = now_us()
    redis.pcall('HINCRBY', meta, 'corrupt', keys.corrupt)
    redis.pcall('HSET', meta, 'corruptAt', string.format('%d', math.floor(now / 1000)))
  end
  if count > 0 then emit_event(keys.events, meta, 'events', count, '', fields) end
end
