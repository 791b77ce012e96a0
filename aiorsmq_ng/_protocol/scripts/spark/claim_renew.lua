-- Extend the leases of a claim's messages, as far as they are still the claimant's.
-- KEYS: zset, hash, ledger, claim, group.
-- ARGV: fence, first message, how many, lease (ms), TTL (s), lease or move.
-- Returns: {the message to go on with or -1, received by others since, gone}.
-- Errors: fenced, ledgerGone, claimGone.
-- Cost: O(messages * log n), at most 1000 messages more than asked for: all of the runs that begin among these.
-- @include clock
-- @include ledger
-- @include lean_lease
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
local upto, ends = from + tonumber(ARGV[3]), now + tonumber(ARGV[4])
local found, parts = redis.call('ZRANGEBYSCORE', claim, from, '(' .. upto, 'WITHSCORES'), {}
for i = 1, #found, 2 do
  parts[#parts + 1] = part_of(found[i], tonumber(found[i + 1]), 0, math.huge)
end
local taken, gone = 0, 0
local function renew(some, score)
  local held, lost, missing = split_held(examine_held(zset, hash, some))
  taken, gone = taken + lost, gone + missing
  if #held == 0 then return end
  local scores = {}
  for i = 1, #held do scores[2 * i - 1], scores[2 * i] = score, held[i] end
  redis.call('ZADD', zset, 'XX', unpack(scores))
end
local received = {}
for _, part in ipairs(parts) do
  if not part.lean then
    received[#received + 1] = part
  else
    -- The run names the score of its messages, so it is written again.
    local lease = reserve_score(zset, ends)
    renew({part}, lease)
    redis.call('ZREM', leases_of(zset), part.fourth)
    redis.call('EXPIRE', leases_of(zset), ARGV[5])
    local run = part.rc .. ' ' .. part.fr .. ' ' .. part.width .. ' ' .. lease .. '\n' .. part.ids
    redis.call('ZREM', claim, part.run)
    redis.call('ZADD', claim, part.first, run)
  end
end
renew(received, string.format('%.0f', ends))
local more = redis.call('ZCOUNT', claim, upto, '+inf') > 0
return {more and upto or -1, taken, gone}
