-- Returns the jobs that are nodes of workflows, by their ids. `has_nodes` is false if the task has none.
local function nodes_among(ids, has_nodes)
  local nodes = {}
  if has_nodes == false then return nodes end
  for at = 1, #ids do
    if string.byte(ids[at]) == 126 then nodes[#nodes + 1] = ids[at] end
  end
  return nodes
end

-- Removes the other jobs. Returns the nodes, and the values to keep of them ({id, value ..}).
local function leave_nodes(places, ids, values)
  local others, nodes, kept = {}, {}, {}
  for _, id in ipairs(ids) do
    local group = string.byte(id) == 126 and nodes or others
    group[#group + 1] = id
  end
  if #others > 0 then remove_columns(places.columns, others) end
  for index = 1, #values, 2 do
    if string.byte(values[index]) == 126 then kept[#kept + 1], kept[#kept + 2] = values[index], values[index + 1] end
  end
  return nodes, kept
end
