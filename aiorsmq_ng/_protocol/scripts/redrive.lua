-- Move messages to another queue, where they start anew: the ones named, or the first ready ones.
-- Leased messages stay where they are.
-- KEYS: zset, hash, deliveries, target zset, target hash, memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), wake-up channel of the target, how many at most, then ids (none = the first ready ones).
-- Returns: the ids moved; to a repeated call those that the first attempt moved. Errors: queueNotFound (the target), queueCorrupt.
-- Cost: O(messages * log n); callers ask for at most 100 so that other clients go on.
local zset, hash, deliveries, target_zset, target_hash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local channel, wanted = ARGV[3], tonumber(ARGV[4])
-- @include clock
-- @include rouse
-- @include number
-- @include once
local before = recall()
if before then
  local moved = {}
  for id in string.gmatch(before, '[^\n]+') do moved[#moved + 1] = id end
  return moved
end
local stored = redis.call('HMGET', target_hash, 'vt', 'delay', 'maxsize', 'totalsent')
redis.call('ZCARD', target_zset)
if not (stored[1] and stored[2] and stored[3]) then return 'queueNotFound' end
local sent = number(stored[4], 0)
if not sent or sent % 1 ~= 0 then return 'queueCorrupt' end
local ids = {}
if #ARGV > 4 then
  for i = 5, #ARGV do
    local score = redis.call('ZSCORE', zset, ARGV[i])
    if score and tonumber(score) <= now and #ids < wanted then ids[#ids + 1] = ARGV[i] end
  end
else
  ids = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'LIMIT', 0, wanted)
end
local moved = {}
for i = 1, #ids do
  local id = ids[i]
  local body = redis.call('HGET', hash, id)
  if body then
    redis.call('ZADD', target_zset, string.format('%.0f', now), id)
    redis.call('HSET', target_hash, id, body)
    redis.call('HDEL', target_hash, id .. ':rc', id .. ':fr')
    moved[#moved + 1] = id
  end
  redis.call('ZREM', zset, id)
  redis.call('HDEL', hash, id, id .. ':rc', id .. ':fr', id .. ':meta')
  redis.pcall('HDEL', deliveries, id)
end
if #moved > 0 then
  redis.call('HSET', target_hash, 'totalsent', string.format('%.0f', sent + #moved))
  redis.pcall('PUBLISH', channel, redis.call('ZCARD', target_zset))
  rouse(target_zset, now)
  remember(table.concat(moved, '\n'))
elseif again then
  forget()
end
return moved
