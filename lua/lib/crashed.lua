-- Whether the column `recovery` says that a worker crashed or was replaced while it held the begun job.
local function has_crashed(recovery)
  return recovery and recovery ~= '' and not string.match(recovery, '^requeued ')
end
