-- Store messages. Each part is one caller's send: stored as a whole or refused as a whole.
-- KEYS: zset, hash. ARGV: wake-up channel, then per part:
--   delay (ms, -1 = the queue's), n, then n times: random id suffix, body.
-- Returns: per part the n ids, or {messageTooLong, bytes, maxsize}.
-- Errors: queueNotFound, queueCorrupt. Cost: O(messages * log n).
local zset, hash, channel = KEYS[1], KEYS[2], ARGV[1]
-- @include queue
-- @include clock

-- An id starts with the send time in microseconds as ten base36 digits. Messages of one call get
-- consecutive microseconds, so ids sort in send order; the upper eight digits change once in 1296.
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
local next_us, upper, upper_text = seconds * 1000000 + micros, -1, ''
local function id_prefix()
  local us = next_us
  next_us = us + 1
  local low = us % 1296
  local high = (us - low) / 1296
  if high ~= upper then
    upper, upper_text = high, ''
    for _ = 1, 8 do
      local digit = high % 36
      upper_text = string.sub(DIGITS, digit + 1, digit + 1) .. upper_text
      high = (high - digit) / 36
    end
  end
  local last = low % 36
  local second = (low - last) / 36
  return upper_text .. string.sub(DIGITS, second + 1, second + 1) .. string.sub(DIGITS, last + 1, last + 1)
end

local scores, bodies = {}, {}
local function flush()
  if #scores > 0 then
    redis.call('ZADD', zset, unpack(scores))
    redis.call('HSET', hash, unpack(bodies))
    scores, bodies = {}, {}
  end
end

local replies, stored_now, at = {}, 0, 2
while at <= #ARGV do
  local delay_ms, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local first, last = at + 2, at + 1 + 2 * count
  at = last + 1
  local reply = {}
  if maxsize >= 0 then
    for i = first + 1, last, 2 do
      if #ARGV[i] > maxsize then
        reply = {'messageTooLong', #ARGV[i], maxsize}
        break
      end
    end
  end
  if #reply == 0 then
    if delay_ms < 0 then delay_ms = queue_delay_ms end
    local score = string.format('%.0f', now + delay_ms)
    for i = first, last, 2 do
      local id = id_prefix() .. ARGV[i]
      reply[#reply + 1] = id
      scores[#scores + 1] = score
      scores[#scores + 1] = id
      bodies[#bodies + 1] = id
      bodies[#bodies + 1] = ARGV[i + 1]
      -- unpack() has room for some 7900 values.
      if #scores >= 4000 then flush() end
    end
    stored_now = stored_now + count
  end
  replies[#replies + 1] = reply
end

if stored_now > 0 then
  bodies[#bodies + 1] = 'totalsent'
  bodies[#bodies + 1] = string.format('%.0f', sent + stored_now)
  if #scores > 0 then
    flush()
  else
    redis.call('HSET', hash, unpack(bodies))
  end
  -- A wake-up is a hint: a user who may not publish may still send.
  redis.pcall('PUBLISH', channel, redis.call('ZCARD', zset))
end
return replies
