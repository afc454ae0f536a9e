-- Adds the event `removed` for jobs without a payload, which cannot run, and counts them in `meta`, for people.
local function add_dropped(fields, meta, ids, now_ms)
  if #ids == 0 then return end
  redis.pcall('HINCRBY', meta, 'payloadsLost', #ids)
  redis.pcall('HSET', meta, 'payloadLostAt', string.format('%d', now_ms))
  add_words(fields, 'why', { 'no_payload' })
  add_words(fields, 'removed', ids)
end
