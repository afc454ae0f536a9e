-- A job with a key waits in the lane of its key. `lanes` has an entry for each waiting job: key, place and id, with
-- zero bytes between them. A place is 20 digits: 1, 2 or 3 by priority, then when the job was dispatched, us, and its
-- index in the call. In a lane jobs are claimed in the order of their places.
--
-- `turns` has each key that has waiting jobs, and maybe others. Its score says when the key is next: for a key that may
-- start jobs the virtual time of its turn, in thousandths; for a key that rests RESTING plus until when, ms; for a key
-- that is full FULL plus since when, ms. A key in `turns` without need does no harm: the next claim moves it.
--
-- `laneHeld` has an entry for each held job with a key, while keys have limits: key and id. It is a set, not a counter,
-- so no slot is given back twice.
local RESTING = 4e15
local FULL = 6e15

local function lane_entry(key, rank, us, index, id)
  return string.format('%s\0%d%016d%03d\0%s', key, rank, us, index, id)
end

-- The virtual time: the score of a key that enters `turns`.
local function turn_now(meta)
  return redis.call('HGET', meta, 'turn') or '0'
end

-- Gives each of these keys a turn, unless `turns` has it. Returns how many it had not.
local function give_turns(turns, meta, keys)
  local turn, words = turn_now(meta), {}
  for at, key in ipairs(keys) do words[2 * at - 1], words[2 * at] = turn, key end
  return redis.call('ZADD', turns, 'NX', unpack(words))
end
