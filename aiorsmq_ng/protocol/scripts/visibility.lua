-- Change when messages become visible, fenced by their receipts or not.
-- KEYS: zset, hash. ARGV: wake-up channel, then per part: id, rc, fr (rc '' = no fence), vt (ms).
-- Returns: per part 1 changed, 0 gone, -1 received by somebody since.
-- Errors: queueNotFound, queueCorrupt. Cost: O(messages * log n).
local zset, hash, channel = KEYS[1], KEYS[2], ARGV[1]
-- @include queue
-- @include clock
-- @include fence
-- @include spend
spend()
local receipts = {}
for at = 2, #ARGV, 4 do
  for i = at, at + 2 do receipts[#receipts + 1] = ARGV[i] end
end
local held, replies, changes, sooner = standing(receipts), {}, {}, false
for n = 1, #held do
  local id, vt_ms = receipts[3 * n - 2], tonumber(ARGV[4 * n + 1])
  if held[n] == 'gone' then
    replies[n] = 0
  elseif held[n] == 'stale' then
    replies[n] = -1
  else
    replies[n] = 1
    sooner = sooner or now + vt_ms < held[n]
    changes[#changes + 1] = string.format('%.0f', now + vt_ms)
    changes[#changes + 1] = id
  end
end
for from = 1, #changes, 4000 do
  redis.call('ZADD', zset, unpack(changes, from, math.min(#changes, from + 3999)))
end
-- Sleepers know when the next message was due; tell them if one is due earlier now.
if sooner then redis.pcall('PUBLISH', channel, redis.call('ZCARD', zset)) end
return replies
