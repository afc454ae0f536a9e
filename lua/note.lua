-- Stores notes of running handlers: their progress, and a checkpoint from which the next run can continue.
-- Uses     now words events emit held
-- KEYS[1]  checkpoint  (hash)    column
-- KEYS[2]  progress    (hash)    column
-- KEYS[3]  locks       (hash)    id -> token
-- KEYS[4]  meta        (hash)    event mode, event total
-- KEYS[5]  events      (stream)  one entry
-- ARGV[1]  worker      (id)
-- ARGV[2]  notes       (six words each, at most 200: id, fence, number of the note in this run, checkpoint or '',
--                       progress as stored or '', progress as a word of the event)
-- Returns  {'noted', fences lost}
-- Emits    progress
-- Refuses  WRONGTYPE before the first write
local worker, ids, fences = ARGV[1], {}, {}
for at = 2, #ARGV, 6 do ids[#ids + 1], fences[#fences + 1] = ARGV[at], ARGV[at + 1] end

local event_mode = redis.call('HGET', meta, 'eventMode')
local held, lost = held_by(locks, worker, ids, fences)
if #held == 0 then return { 'noted', lost } end
local now, fields = string.format('%d', now_us() / 1000), {}
-- A later note, by the fence or by the number under the same fence, may be stored already.
local function newer(column, which)
  local known, values, words = redis.call('HMGET', column, unpack(ids)), {}, {}
  for _, place in ipairs(held) do
    local at = 2 + 6 * (place - 1)
    local fence, number = string.match(known[place] or '', '^(%d+) (%d+) ')
    local is_old = fence == fences[place] and tonumber(number) >= tonumber(ARGV[at + 2])
    if ARGV[at + which] ~= '' and not is_old then
      local note = table.concat({ fences[place], ARGV[at + 2], now, ARGV[at + which] }, ' ')
      values[#values + 1], values[#values + 2] = ids[place], note
      words[#words + 1] = ids[place] .. ' ' .. ARGV[at + 5]
    end
  end
  return values, words
end
local checkpoints = newer(checkpoint, 3)
local progresses, words = newer(progress, 4)

if #checkpoints > 0 then redis.call('HSET', checkpoint, unpack(checkpoints)) end
if #progresses > 0 then redis.call('HSET', progress, unpack(progresses)) end
add_words(fields, 'progress', words)
if #words > 0 and event_mode ~= 'off' then emit_event(events, meta, 'events', #words, worker, fields) end
return { 'noted', lost }
