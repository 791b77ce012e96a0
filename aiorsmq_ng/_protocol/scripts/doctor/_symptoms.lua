-- What can be wrong with the time of a message that has both an id and a body.
-- sent_ms(id, now) -> send time by its id (epoch ms), or nil if the id was not built by RSMQ's rule.
-- score_of(text) -> a score as a number.
-- receives(hash, ids) -> rc and fr of each, flat.
-- usual_wait_ms(hash) -> the longest wait that is not suspicious in this queue: its vt or delay, or 12 hours.
-- symptom(id, score, rc, fr, max_hidden_ms, usual_ms, now) -> nil if sound, else one of
--   'hidden_by_clock', score it should have: its wait began in the future, so the server's clock was set back;
--   'too_far', score it should have: hidden for longer than RSMQ allows, or than max_hidden_ms;
--   'long_hidden': hidden for longer than usual_ms;
--   'sent_in_future': by its id; the message itself can be received in time.
-- A wait begins with the send or, once received, with the first receive. A repair removes what the clock has added and
-- keeps the wait that was asked for. A message that was asked to wait longer than the clock has added is left as it is:
-- once repaired it would look the same, and the next run would repair it again.
-- @include number
local LONGEST_MS, YEAR_MS, HALF_DAY_MS, MARGIN_MS = 9999999000, 31622400000, 43200000, 60000
-- Ids of one call are up to a tenth of a second ahead of the clock.
local FUTURE_MS, SPREAD_MS = 1000, 200
local function usual_wait_ms(hash)
  local usual_ms = HALF_DAY_MS
  for _, stored in ipairs({redis.call('HGET', hash, 'vt'), redis.call('HGET', hash, 'delay')}) do
    local stored_ms = 1000 * (number(stored, 0) or 0)
    if stored_ms <= LONGEST_MS then usual_ms = math.max(usual_ms, stored_ms) end
  end
  return usual_ms + MARGIN_MS
end
local function sent_ms(id, now)
  if #id ~= 32 or string.find(string.sub(id, 1, 10), '[^0-9a-z]') then return nil end
  local us = tonumber(string.sub(id, 1, 5), 36) * 60466176 + tonumber(string.sub(id, 6, 10), 36)
  -- Before the year 2001, or more than a year ahead: no time at all.
  if us < 1000000000000000 or us / 1000 > now + YEAR_MS then return nil end
  return us / 1000
end
local function score_of(text)
  if text == 'inf' then return math.huge end
  if text == '-inf' then return -math.huge end
  return tonumber(text)
end
local function receives(hash, ids)
  local fields = {}
  for i = 1, #ids do
    fields[2 * i - 1], fields[2 * i] = ids[i] .. ':rc', ids[i] .. ':fr'
  end
  return #ids > 0 and redis.call('HMGET', hash, unpack(fields)) or {}
end
local function symptom(id, score, rc, fr, max_hidden_ms, usual_ms, now)
  local sent = sent_ms(id, now)
  if score > now then
    local began = sent
    if rc then began = number(fr, sent) or sent end
    local wait_ms = score - now
    if began and began > now + FUTURE_MS and began < now + YEAR_MS and score > began - SPREAD_MS then
      local asked_ms = math.max(0, math.floor(score - began))
      if asked_ms + SPREAD_MS < began - now then return 'hidden_by_clock', now + asked_ms end
    end
    if wait_ms > LONGEST_MS + MARGIN_MS or (max_hidden_ms >= 0 and wait_ms > max_hidden_ms) then
      return 'too_far', now
    elseif wait_ms > usual_ms then
      return 'long_hidden'
    end
  end
  if sent and sent > now + FUTURE_MS then return 'sent_in_future' end
end
