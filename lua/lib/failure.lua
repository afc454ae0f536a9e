-- Why an expired job ended.
local NOT_IN_TIME = 'no worker began the job before it expired'

-- The start of an error message as one percent-encoded word of an event.
local function brief_of(message)
  return (string.gsub(string.sub(message, 1, BRIEF), '[^!-$&-~]', function(byte)
    return string.format('%%%02X', string.byte(byte))
  end))
end

-- The `error` column of a job that ended without a value.
local function error_json(code, message)
  return cjson.encode({ code = code, message = message })
end
