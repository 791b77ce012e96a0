-- Move messages of a claim to the dead-letter queue, as far as they are still the claimant's. A mark takes the place of each
-- in the claim, so the others keep their numbers.
-- KEYS: zset, hash, deliveries, ledger, claim, dead zset, dead hash, dead deliveries, index.
-- ARGV: fence, dead-letter queue's name, its wake-up channel, then per message in the order of the claim: its number in the
--   claim, id, body as it was read, and why.
-- Returns: how many were moved.
-- Errors: fenced, ledgerGone, claimGone, queueNotFound, queueCorrupt (of the dead-letter queue, too).
-- Cost: O(messages * log n + messages in their runs), at most 500 messages.
-- @include clock
-- @include read_queue
-- @include ledger
-- @include moved
-- @include dead_letter
-- @include headers
-- @include remove_messages
-- @include allow_writes_when_full
local zset, hash, deliveries, ledger, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local refused, mode = check_fence(ledger, ARGV[1])
if refused then return refused end
local now, seconds, micros = server_time()
local dead = {source = zset, zset = KEYS[6], hash = KEYS[7], deliveries = KEYS[8], index = KEYS[9], name = ARGV[2], channel = ARGV[3],
  now = now, seconds = seconds, micros = micros}
local damaged, _, _, _, _, _, maxsize = read_queue(zset, hash)
damaged = damaged or check_dead_letters(dead)
if damaged then return damaged end
local parts = runs_between(claim, tonumber(ARGV[4]), tonumber(ARGV[#ARGV - 3]) + 1)
if #parts == 0 then return 'claimGone' end
allow_writes_when_full(hash)

local moved, at = mode == 'move', 4
local function is_held(part, id)
  if moved then return true end
  local one = {rc = part.rc, width = part.width, fourth = part.fourth, lean = part.lean, ids = id, count = 1, size = part.size}
  local _, state = examine_held(zset, hash, {one})
  return state[1] == true
end
local function bury(part, id, body, why)
  local rc, fr = tonumber(part.rc) or 1, tonumber(part.fr) or now
  local history = parse_note(moved and part.note or read_notes(deliveries, {id})[1], rc, fr)
  -- Its holder lived to refuse it, so it is no suspect.
  history.strikes, history.why = 0, '\n' .. why
  store_dead_letter(dead, id, body, part.rc, fr, maxsize, format_note(rc, history, 'r', now))
  if moved then
    remove_headers(zset, with_headers({id}))
  else
    remove_messages(zset, hash, deliveries, {id})
  end
end
for _, part in ipairs(parts) do
  local pieces, done, width = {}, 0, part.width
  while at < #ARGV and tonumber(ARGV[at]) < part.first + part.count do
    local number, id = tonumber(ARGV[at]), ARGV[at + 1]
    local place = (number - part.first) * width
    if string.sub(part.ids, place + 1, place + width) == id and is_held(part, id) then
      bury(part, id, ARGV[at + 2], ARGV[at + 3])
      pieces[#pieces + 1] = string.sub(part.ids, done + 1, place)
      pieces[#pieces + 1] = '!' .. string.format('%0' .. (width - 1) .. '.0f', number)
      done = place + width
    end
    at = at + 4
  end
  if done > 0 then
    pieces[#pieces + 1] = string.sub(part.ids, done + 1)
    local head = string.match(part.run, '^[^\n]*\n')
    redis.call('ZREM', claim, part.run)
    redis.call('ZADD', claim, part.first, head .. table.concat(pieces) .. (part.note or ''))
  end
end
if moved and dead.added > 0 then count_moved(zset, claim, -dead.added) end
finish_dead_letters(dead)
return dead.added
