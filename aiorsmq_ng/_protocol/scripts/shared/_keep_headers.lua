-- The TTL of headers: 14 days after the last message with headers came or was deferred, longer for a longer delay, and a year
-- more for dead letters.
-- DEAD_LETTERS_MS: how long dead letters are taken to be delayed.
-- keep_headers(zset, delay_ms) extends the TTL for messages that are delayed.
-- @include headers
local DEAD_LETTERS_MS = 31536000000
local function keep_headers(zset, delay_ms)
  local key, least = headers_of(zset), 1209600 + math.ceil(delay_ms / 1000)
  local left = redis.pcall('TTL', key)
  -- Extended by one day more, so that most calls need not write it.
  if type(left) == 'number' and left < least then
    redis.pcall('EXPIRE', key, least + 86400)
  end
end
