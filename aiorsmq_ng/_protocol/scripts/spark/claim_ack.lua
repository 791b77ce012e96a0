-- Acknowledge a claim: delete its messages, as far as they are still the claimant's.
-- KEYS: zset, hash, deliveries, ledger, claim.
-- ARGV: fence, number of the claim, how many messages.
-- Returns: runs of messages left to acknowledge; at 0 the claim is done.
-- Errors: fenced, ledgerGone.
-- Cost: O(messages * log n), at most 2000 messages.
-- @include ledger
-- @include runs
local zset, hash, deliveries, ledger, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local refused = check_fence(ledger, ARGV[1])
if refused then return refused end
local known = redis.call('HMGET', ledger, 'acked', 'mode')
if tonumber(known[1] or 0) >= tonumber(ARGV[2]) then return 0 end
local left = 0
if known[2] == 'move' then
  redis.call('UNLINK', claim)
else
  local ids, rcs, _, runs = first_runs(claim, tonumber(ARGV[3]))
  local held = still_held(hash, ids, rcs)
  local fields = {}
  for i = 1, #held do
    local id, at = held[i], 4 * i
    fields[at - 3], fields[at - 2], fields[at - 1], fields[at] = id, id .. ':rc', id .. ':fr', id .. ':meta'
  end
  for from = 1, #held, 1500 do
    local upto = math.min(#held, from + 1499)
    redis.call('ZREM', zset, unpack(held, from, upto))
    redis.call('HDEL', hash, unpack(fields, 4 * from - 3, 4 * upto))
  end
  if #held > 0 and redis.call('EXISTS', deliveries) == 1 then
    redis.pcall('HDEL', deliveries, unpack(held))
  end
  if runs > 0 then redis.call('ZREMRANGEBYRANK', claim, 0, runs - 1) end
  left = redis.call('ZCARD', claim)
end
if left == 0 then
  redis.call('HDEL', ledger, 'sealed:' .. ARGV[2])
  redis.call('HSET', ledger, 'acked', ARGV[2])
end
return left
