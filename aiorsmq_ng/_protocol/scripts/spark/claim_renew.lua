-- Extend the leases of a claim's messages, as far as they are still the claimant's.
-- KEYS: zset, hash, ledger, claim, group.
-- ARGV: fence, first message, how many, lease (ms), TTL (s), lease or move.
-- Returns: {the message to go on with or -1, received by others since, gone}.
-- Errors: fenced, ledgerGone, claimGone.
-- Cost: O(messages * log n), at most 1000 messages.
-- @include clock
-- @include ledger
-- @include runs
local zset, hash, ledger, claim, from = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[2])
local now = server_time()
local refused = check_fence(ledger, ARGV[1])
if refused then return refused end
if ARGV[6] == 'move' then
  if redis.call('EXISTS', claim) == 0 then return 'claimGone' end
  return {-1, 0, 0}
end
redis.call('EXPIRE', ledger, ARGV[5])
redis.call('EXPIRE', KEYS[5], ARGV[5])
if redis.call('EXPIRE', claim, ARGV[5]) == 0 then return 'claimGone' end
local count = tonumber(ARGV[3])
local ids, rcs = messages_of(claim, from, from + count)
local held, taken, gone = still_held(hash, ids, rcs)
if #held > 0 then
  local score, scores = string.format('%.0f', now + tonumber(ARGV[4])), {}
  for i = 1, #held do scores[2 * i - 1], scores[2 * i] = score, held[i] end
  redis.call('ZADD', zset, 'XX', unpack(scores))
end
return {#ids < count and -1 or from + count, taken, gone}
