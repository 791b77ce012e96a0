-- Acknowledge a claim: delete its messages, as far as they are still the claimant's.
-- KEYS: zset, hash, deliveries, ledger, claim. ARGV: fence, number of the claim, how many messages.
-- Returns: messages left to acknowledge; at 0 the claim is done with.
-- Errors: fenced, ledgerGone. Cost: O(messages * log n), at most 1000 messages.
local zset, hash, deliveries, ledger, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- @include ledger
local refused = guard(ledger, ARGV[1])
if refused then return refused end
local known = redis.call('HMGET', ledger, 'acked', 'mode')
if tonumber(known[1] or 0) >= tonumber(ARGV[2]) then return 0 end
local left = 0
if known[2] == 'move' then
  redis.call('UNLINK', claim)
else
  local rows = redis.call('LRANGE', claim, 0, 3 * tonumber(ARGV[3]) - 1)
  if #rows > 0 then
    local held, fields = standing(rows), {}
    for i = 1, #held do
      local at = 4 * i - 3
      fields[at], fields[at + 1] = held[i], held[i] .. ':rc'
      fields[at + 2], fields[at + 3] = held[i] .. ':fr', held[i] .. ':meta'
    end
    if #held > 0 then
      redis.call('ZREM', zset, unpack(held))
      redis.call('HDEL', hash, unpack(fields))
      redis.pcall('HDEL', deliveries, unpack(held))
    end
    redis.call('LTRIM', claim, #rows, -1)
  end
  left = redis.call('LLEN', claim) / 3
end
if left == 0 then
  redis.call('HDEL', ledger, 'sealed:' .. ARGV[2])
  redis.call('HSET', ledger, 'acked', ARGV[2])
end
return left
