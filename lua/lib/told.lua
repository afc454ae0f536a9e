-- Tells what happened to nodes and instances, in one entry, behind the last write.
local function tell_all(keys, meta, events)
  local fields, count = {}, 0
  for _, kind in ipairs({ 'started', 'node', 'paused', 'resumed', 'ended' }) do
    local words = keys.told and keys.told[kind] or {}
    add_words(fields, kind, words)
    count = count + #words
  end
  if count > 0 then emit_event(events, meta, 'events', count, '', fields) end
end
