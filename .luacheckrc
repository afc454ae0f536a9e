-- Redis runs Lua 5.1 with a few globals of its own.
std = "lua51"
max_line_length = 120

read_globals = { "redis", "cjson", "cmsgpack", "bit", "struct", "KEYS", "ARGV" }

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

files["lua/lib"] = { ignore = { "211" } }
