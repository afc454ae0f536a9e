-- The key in an input: the text, whole number below 2^53 or boolean at this JSON pointer. Nil if there is none, and for
-- inputs over 16 KiB, which would take long to decode.
local function key_at(input, pointer)
  local can_read, value = pcall(cjson.decode, #input <= NARROW_BYTES and input or '')
  if not can_read then return nil end
  for step in string.gmatch(pointer, '/([^/]*)') do
    if type(value) ~= 'table' then return nil end
    local name = string.gsub(string.gsub(step, '~1', '/'), '~0', '~')
    local inner = value[name]
    if inner == nil and (name == '0' or string.match(name, '^[1-9]%d*$')) then inner = value[tonumber(name) + 1] end
    value = inner
  end
  if type(value) == 'number' then
    return value % 1 == 0 and math.abs(value) < 2 ^ 53 and string.format('%d', value) or nil
  end
  if type(value) == 'boolean' then return tostring(value) end
  local fits = type(value) == 'string' and #value > 0 and #value <= 128 and not string.find(value, '%c')
  return fits and value or nil
end
