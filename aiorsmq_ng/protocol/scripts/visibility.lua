-- Change when messages become visible, fenced by their receipts or not.
-- KEYS: zset, hash, memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), wake-up channel, then per part: id, rc, fr (rc '' = no
--   fence), vt (ms).
-- Returns: per part 1 changed, 0 gone, -1 received by somebody since. A repeated call is made again; an
--   attempt that comes late, after a later one or a later call of the series, changes nothing.
-- Errors: queueNotFound, queueCorrupt. Cost: O(messages * log n).
local zset, hash, memory, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[3]
-- @include queue
-- @include clock
-- @include rouse
-- @include fence
-- @include spend
spend()
local known = redis.call('SET', memory, ARGV[1] .. ' ' .. ARGV[2] .. ' ', 'PX', 600000, 'GET')
if known then
  local last, seen = string.match(known, '^(%d+) (%d+)')
  last = tonumber(last or -1)
  if last > tonumber(ARGV[1]) or (last == tonumber(ARGV[1]) and tonumber(seen) >= tonumber(ARGV[2])) then
    redis.call('SET', memory, known, 'PX', 600000)
    return {}
  end
end
local receipts = {}
for at = 4, #ARGV, 4 do
  for i = at, at + 2 do receipts[#receipts + 1] = ARGV[i] end
end
local held, replies, changes, sooner = standing(receipts), {}, {}, false
for n = 1, #held do
  local id, vt_ms = receipts[3 * n - 2], tonumber(ARGV[4 * n + 3])
  if held[n] == 'gone' then
    replies[n] = 0
  elseif held[n] == 'stale' then
    replies[n] = -1
  else
    replies[n] = 1
    sooner = sooner or now + vt_ms < tonumber(held[n])
    changes[#changes + 1] = string.format('%.0f', now + vt_ms)
    changes[#changes + 1] = id
  end
end
for from = 1, #changes, 4000 do
  redis.call('ZADD', zset, unpack(changes, from, math.min(#changes, from + 3999)))
end
-- Sleepers know when the next message was due; tell them if one is due earlier now.
if sooner then
  redis.pcall('PUBLISH', channel, redis.call('ZCARD', zset))
  rouse(zset)
end
return replies
