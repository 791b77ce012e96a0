-- Give the messages of a claim back, as far as they are still the claimant's: ready at once, in the
-- order in which they were sent.
-- KEYS: zset, hash, ledger, claim. ARGV: wake-up channel, fence, number of the claim, how many messages.
-- Returns: {messages given back, left}; at 0 left the claim is forgotten.
-- Errors: queueNotFound, queueCorrupt, fenced, ledgerGone.
-- Cost: O(messages * log n), at most 1000 messages.
local zset, hash, ledger, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- @include queue
-- @include clock
-- @include ledger
local refused = guard(ledger, ARGV[2])
if refused then return refused end
local moved = redis.call('HGET', ledger, 'mode') == 'move'
local width = moved and 4 or 3
local rows = redis.call('LRANGE', claim, 0, width * tonumber(ARGV[4]) - 1)
local held, fields = {}, {}
if #rows > 0 and not moved then
  held = standing(rows)
else
  for at = 1, #rows, 4 do
    held[#held + 1] = rows[at]
    local size = #fields
    fields[size + 1], fields[size + 2] = rows[at], rows[at + 3]
    fields[size + 3], fields[size + 4] = rows[at] .. ':rc', rows[at + 1]
    fields[size + 5], fields[size + 6] = rows[at] .. ':fr', rows[at + 2]
  end
end
local scores = {}
for i = 1, #held do
  -- Not now: a reader that takes what was there when it began must find them.
  local sent_ms = math.floor((tonumber(string.sub(held[i], 1, 10), 36) or 0) / 1000)
  scores[2 * i - 1], scores[2 * i] = string.format('%.0f', math.min(now, sent_ms)), held[i]
end
if #held > 0 then
  if moved then
    for from = 1, #fields, 3000 do
      redis.call('HSET', hash, unpack(fields, from, math.min(#fields, from + 2999)))
    end
    redis.call('ZADD', zset, unpack(scores))
  else
    redis.call('ZADD', zset, 'XX', unpack(scores))
  end
  redis.pcall('PUBLISH', ARGV[1], redis.call('ZCARD', zset))
end
if #rows > 0 then redis.call('LTRIM', claim, #rows, -1) end
local left = redis.call('LLEN', claim) / width
if left == 0 then
  redis.call('HDEL', ledger, 'sealed:' .. ARGV[3])
  if redis.call('HGET', ledger, 'open') == ARGV[3] then redis.call('HDEL', ledger, 'open') end
end
return {#held, left}
