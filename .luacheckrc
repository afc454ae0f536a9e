-- Redis runs Lua 5.1 with a few globals of its own.
std = "lua51"
max_line_length = 120

-- The bounds are put in front of every script, as a line that gives its keys their names.
read_globals = { "redis", "cjson", "cmsgpack", "bit", "struct", "KEYS", "ARGV", "LARGE", "NARROW_BYTES", "BATCH", "BRIEF", "FEW" }

-- A script is joined from fragments of lua/lib and one file of lua, and luacheck sees each file alone: a fragment
-- defines `local function x`, and whoever uses x sees a global. So what the fragments define is allowed as a global
-- everywhere, and may be unused in the fragment itself. A script that lacks a fragment fails when it runs, because Redis
-- refuses globals.
local fragments = assert(io.popen("cat lua/lib/*.lua 2>/dev/null"))
for line in fragments:lines() do
  local name = line:match("^local function ([%a_][%w_]*)") or line:match("^local ([%a_][%w_]*) *=")
  if name then
    read_globals[#read_globals + 1] = name
  end
end
fragments:close()

-- The table of all keys, which scripts get that use one of the fragments `book`, `faults`, `gone`, `named`, `resolve`
-- and `tick_jobs`.
globals = { "keys" }

-- A script may name the keys of its header. Fragments are given the keys that they need.
local scripts = assert(io.popen("grep '^-- KEYS' lua/*.lua 2>/dev/null"))
for line in scripts:lines() do
  local file, name = line:match("^(lua/[%w_]+%.lua):%-%- KEYS%[%d+%] +(%S+)")
  if name == "error" then
    name = "errors"
  end
  name = name:gsub(":", "_"):gsub("%u", function(upper) return "_" .. upper:lower() end)
  files[file] = files[file] or {}
  files[file].read_globals = files[file].read_globals or {}
  table.insert(files[file].read_globals, name)
end
scripts:close()

files["lua/lib"] = { ignore = { "211", "241" } }
