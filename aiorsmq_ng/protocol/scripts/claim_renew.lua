-- Lengthen the leases of a claim's messages, as far as they are still the claimant's.
-- KEYS: zset, hash, ledger, claim, group. ARGV: fence, first message, how many, lease (ms), TTL (s),
--   lease or move.
-- Returns: {the message to go on with or -1, received by others since, gone}.
-- Errors: fenced, ledgerGone, claimGone. Cost: O(messages * log n), at most 1000 messages.
local zset, hash, ledger, claim, from = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[2])
-- @include clock
-- @include ledger
local refused = guard(ledger, ARGV[1])
if refused then return refused end
if ARGV[6] == 'move' then
  if redis.call('EXISTS', claim) == 0 then return 'claimGone' end
  return {-1, 0, 0}
end
redis.call('EXPIRE', ledger, ARGV[5])
redis.call('EXPIRE', KEYS[5], ARGV[5])
if redis.call('EXPIRE', claim, ARGV[5]) == 0 then return 'claimGone' end
local rows = redis.call('LRANGE', claim, 3 * from, 3 * (from + tonumber(ARGV[3])) - 1)
if #rows == 0 then return {-1, 0, 0} end
local held, taken, gone = standing(rows)
if #held > 0 then
  local score, scores = string.format('%.0f', now + tonumber(ARGV[4])), {}
  for i = 1, #held do scores[2 * i - 1], scores[2 * i] = score, held[i] end
  redis.call('ZADD', zset, 'XX', unpack(scores))
end
local next_one = from + #rows / 3
if 3 * next_one >= redis.call('LLEN', claim) then next_one = -1 end
return {next_one, taken, gone}
