-- Decodes a JSON object, such as the overrides of a dispatch; an empty table if there is none.
local function object_of(json)
  local ok, object = pcall(cjson.decode, json or '')
  return ok and type(object) == 'table' and object or {}
end
