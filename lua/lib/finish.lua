-- Puts the jobs into a terminal set, or removes them if the task keeps none.
-- `values` are written to `result` or `error`: {id, value, id, value ..}. If the task has a hook, the outcome is stored
-- instead and the hook runs next, except for `broken` jobs. `ran` has the run times of the handlers, if known. With
-- `how.is_again` the jobs ended before and lost their place, so they are not counted again. An ended node of a workflow
-- also enters `outbox`, in the same write, and stays there until its workflow has recorded the end.
local function finish(places, how, kind, ids, values, broken, ran)
  local waits = how.hook and not broken
  local is_counted = kind == 'failed' and not (waits or how.is_again) and #ids > 0
  if is_counted then redis.pcall('HINCRBY', places.meta, 'outFailed', #ids) end
  local nodes = waits and {} or nodes_among(ids, how.nodes)
  if not waits and how.keep[kind] == '0' then
    if #nodes == 0 then return remove_columns(places.columns, ids) end
    ids, values = leave_nodes(places, ids, values)
  end
  local place, score = waits and places.finalizing or places[kind], string.format('%d', how.now_ms)
  if #values > 0 then redis.call('HSET', kind == 'completed' and places.result or places.errors, unpack(values)) end
  if waits then
    local outcomes = {}
    for index, id in ipairs(ids) do
      outcomes[2 * index - 1], outcomes[2 * index] = id, kind .. ' 0 0 ' .. (ran and ran[index] or '-')
    end
    redis.call('HSET', places.outcome, unpack(outcomes))
  end
  add_all(place, score, ids)
  if #nodes > 0 then add_all(places.outbox, score, nodes) end
end
