-- Idempotency of send and publish (see _idempotency.lua for the rules).
--
-- Every send pays for its memory, so it holds only what the reply depends on besides the arguments:
-- "call seconds micros limit", then, if a dedup key met a duplicate, per part with a window the id that its marker
-- held ('-' none). From these, and from the arguments, which a repetition sends again, replay_send builds the same
-- reply. "call void": a repetition found that the call had not run. Earlier attempts
-- are late, also if the repetition fails.
--
-- memory: the key; call_number, attempt: ARGV[1] and ARGV[2], as text. A negative attempt must write even if it
-- changes nothing: the caller asks next how far the last write of its connection has got.
-- recall_send(memory, call_number, attempt) -> nil: run the call; '': this attempt is late; else what
--   replay_send needs. For attempts other than the first.
-- remember_send(memory, call_number, attempt, outcome) -> false if this attempt is late. One command, which
--   writes and reads, because every send pays for it.
-- replay_send(known, at, upto, open_part, too_long, suffix_at) -> the reply of the first attempt. at, upto: place of the first
--   part and of the last argument. open_part(at) -> window, messages in the part, place of the next part; too_long(at, count, limit) -> the
--   reply of a part that is refused, or nil; suffix_at(at, i, count) -> random part of the i-th id.
-- @include new_id
-- @include side_key
local function recall_send(memory, call_number, attempt)
  local known = call_side('GET', memory) or ''
  local last, number = tonumber(string.match(known, '^(%d+) ') or -1), tonumber(call_number)
  if last > number then return '' end
  local outcome = string.match(known, '^%d+ (%d+ %d+ %S+.*)$')
  if last == number and outcome then
    if tonumber(attempt) < 0 then redis.call('SET', memory, known, 'PX', 3600000) end
    return outcome
  end
  redis.call('SET', memory, call_number .. ' void', 'PX', 3600000)
end
local function remember_send(memory, call_number, attempt, outcome)
  local known = call_side('SET', memory, outcome, 'PX', 3600000, 'GET')
  -- Without GET a key of another type is replaced.
  if known == nil then redis.call('SET', memory, outcome, 'PX', 3600000) end
  if known and attempt == '1' and tonumber(string.match(known, '^(%d+) ') or -1) >= tonumber(call_number) then
    redis.call('SET', memory, known, 'PX', 3600000)
    return false
  end
  return true
end
local function replay_send(known, at, upto, open_part, too_long, suffix_at)
  local seconds, micros, limit, held = string.match(known, '^(%d+) (%d+) (%S+) ?(.*)$')
  local us, hits, replies = seconds * 1000000 + micros, string.gmatch(held, '%S+'), {}
  limit = tonumber(limit)
  while at <= upto do
    local window, count, next_at = open_part(at)
    local reply = too_long(at, count, limit)
    local hit = not reply and window > 0 and hits() or '-'
    if hit ~= '-' then
      reply = {hit, 'duplicate'}
      us = us + 1
    elseif not reply then
      reply = {}
      for i = 1, count do reply[i] = id_of(us + i - 1, suffix_at(at, i, count)) end
      us = us + count
      if window > 0 then reply[2] = 'stored' end
    end
    replies[#replies + 1] = reply
    at = next_at
  end
  return replies
end
