-- Remove all messages, leased ones too. The attributes are set aside and the hash is dropped whole,
-- so the cost does not depend on the number of messages.
-- KEYS: zset, hash, deliveries, memory of the caller's series. ARGV: call number, attempt (see _once.lua).
-- Returns: number removed; to a repeated call what the first attempt returned. Errors: queueNotFound, queueCorrupt. Cost: O(1).
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
-- @include queue
-- @include once
local before = recall()
if before then return tonumber(before) or 0 end
-- @include own_fields
local values = redis.call('HMGET', hash, unpack(OWN_FIELDS))
local removed = redis.call('ZCARD', zset)
local kept = {}
for i = 1, #OWN_FIELDS do
  if values[i] then
    kept[#kept + 1] = OWN_FIELDS[i]
    kept[#kept + 1] = values[i]
  end
end
redis.call('UNLINK', zset, hash, deliveries)
redis.call('HSET', hash, unpack(kept))
remember(removed)
return removed
