-- Removes every column of the jobs. columns[1] is the payload, which each job has; the others hold only
-- what differs from a default, so one EXISTS mostly answers for all of them.
local function remove_columns(columns, ids)
  redis.call('HDEL', columns[1], unpack(ids))
  if #columns > 1 and redis.call('EXISTS', unpack(columns, 2)) > 0 then
    for i = 2, #columns do redis.call('HDEL', columns[i], unpack(ids)) end
  end
end

-- Puts the jobs into a terminal set, with what is to be kept of each (column, {id, value, id, value ..}); or
-- removes them at once when the task keeps none (keep is '0').
local function finish(place, keep, now_ms, columns, ids, column, values)
  if keep == '0' then return remove_columns(columns, ids) end
  if #values > 0 then redis.call('HSET', column, unpack(values)) end
  local entries, score = {}, string.format('%d', now_ms)
  for i = 1, #ids do
    entries[2 * i - 1] = score
    entries[2 * i] = ids[i]
  end
  redis.call('ZADD', place, unpack(entries))
end

-- The beginning of an error as one word of an event: percent-encoded.
local function brief_of(message)
  return (string.gsub(string.sub(message, 1, 160), '[^!-$&-~]', function(byte)
    return string.format('%%%02X', string.byte(byte))
  end))
end

-- The `error` column of a job that ended without a value.
local function error_json(code, message)
  return cjson.encode({ code = code, message = message })
end
