-- Counts the jobs of a task by place. Changes nothing. Not a transaction, which a server at maxmemory would refuse.
-- Uses     counts
-- KEYS[1]  wait:high  (list)  ids
-- KEYS[2]  wait       (list)  ids
-- KEYS[3]  wait:low   (list)  ids
-- KEYS[4]  delayed    (zset)  ids by due time, ms
-- KEYS[5]  locks      (hash)  id -> token
-- KEYS[6]  completed  (zset)  ids by finish time, ms
-- KEYS[7]  failed     (zset)  ids by finish time, ms
-- KEYS[8]  cancelled  (zset)  ids by finish time, ms
-- KEYS[9]  meta       (hash)  number of tombstones, pause
-- KEYS[10] claimed    (hash)  id -> fence of a held job that has not begun
-- KEYS[11] outcome    (hash)  column
-- KEYS[12] finalizing (zset)  ids whose hook has to run, by due time, ms
-- KEYS[13] lanes      (zset)  entries of waiting jobs with keys: see lib/lanes.lua
-- Returns  {'counted', waiting, delayed, claimed, running, finalizing, completed, failed, cancelled, paused (0 or 1)}
-- Emits    nothing
-- Refuses  WRONGTYPE
local lists, ended = { wait_high, wait, wait_low }, { completed, failed, cancelled }
local reply = { 'counted', unpack(count_jobs(lists, lanes, delayed, claimed, locks,
  { outcome = outcome, finalizing = finalizing }, ended, meta)) }
reply[10] = redis.call('HEXISTS', meta, 'paused')
return reply
