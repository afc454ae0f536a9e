-- The overrides of a dispatch, or another JSON object; an empty table where there is none.
local function object_of(json)
  local ok, object = pcall(cjson.decode, json or '')
  return ok and type(object) == 'table' and object or {}
end
