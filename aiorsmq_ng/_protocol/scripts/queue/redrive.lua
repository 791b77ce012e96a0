-- Move messages to another queue, where they count as never received: the ones named, or the first ready ones. Leased
-- messages stay where they are.
-- KEYS: zset, hash, deliveries, target zset, target hash, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), wake-up channel of the target, how many at most, then ids (none = the
--   first ready ones).
-- Returns: the ids moved; to a repeated call those that the first attempt moved.
-- Errors: queueNotFound (the target), queueCorrupt.
-- Cost: O(messages * log n); callers ask for at most 100 so that other clients can go on.
-- @include clock
-- @include number
-- @include idempotency
-- @include is_id
-- @include ready_ids
-- @include remove_messages
-- @include copy_headers
-- @include wake_waiters
local zset, hash, deliveries, target_zset, target_hash, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local channel, wanted = ARGV[3], tonumber(ARGV[4])
local now, _, micros = server_time()
local before = recall(memory, ARGV[1], ARGV[2])
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
    if score and tonumber(score) <= now and #ids < wanted and is_id(ARGV[i]) then ids[#ids + 1] = ARGV[i] end
  end
else
  ids = ready_ids(zset, now, wanted)
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
end
copy_headers(zset, target_zset, moved)
remove_messages(zset, hash, deliveries, ids)
if #moved > 0 then
  redis.call('HSET', target_hash, 'totalsent', string.format('%.0f', sent + #moved))
  redis.pcall('PUBLISH', channel, redis.call('ZCARD', target_zset))
  wake_waiters(target_zset, now, micros, now)
  remember(memory, ARGV[1], ARGV[2], table.concat(moved, '\n'))
elseif ARGV[2] ~= '1' then
  forget(memory, ARGV[1], ARGV[2])
end
return moved
