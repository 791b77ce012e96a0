-- Remove all messages, leased ones too. The attributes are kept and the hash is dropped as a whole, so the cost
-- does not depend on the number of messages.
-- KEYS: zset, hash, deliveries, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua).
-- Returns: number removed; to a repeated call what the first attempt returned.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(1).
-- @include read_queue
-- @include queue_fields
-- @include idempotency
-- @include headers
local zset, hash, deliveries, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refused = read_queue(zset, hash)
if refused then return refused end
local before = recall(memory, ARGV[1], ARGV[2])
if before then return tonumber(before) or 0 end
local values = redis.call('HMGET', hash, unpack(QUEUE_FIELDS))
local removed = redis.call('ZCARD', zset)
local kept = {}
for i = 1, #QUEUE_FIELDS do
  if values[i] then
    kept[#kept + 1] = QUEUE_FIELDS[i]
    kept[#kept + 1] = values[i]
  end
end
redis.call('UNLINK', zset, hash, deliveries)
-- pcall: a user may have rights on other side keys only.
redis.pcall('UNLINK', headers_of(zset))
redis.call('HSET', hash, unpack(kept))
remember(memory, ARGV[1], ARGV[2], removed)
return removed
