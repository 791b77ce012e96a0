-- Delete messages by id, whoever holds them, but only those under lease.
-- KEYS: zset, hash, deliveries. ARGV: ids, each once.
-- Returns: per id 1 deleted, 0 gone, -1 not under lease.
-- Cost: O(messages * log n). A queue that does not exist has no messages: all gone.
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
-- @include clock
-- @include number
local fields, reply = {}, {}
for i = 1, #ARGV do fields[i] = ARGV[i] .. ':rc' end
local scores = redis.call('ZMSCORE', zset, unpack(ARGV))
local counts = redis.call('HMGET', hash, unpack(fields))
for i = 1, #ARGV do
  local id = ARGV[i]
  reply[i] = scores[i] and -1 or 0
  if scores[i] and tonumber(scores[i]) > now and (number(counts[i], 0) or 0) > 0 then
    redis.call('ZREM', zset, id)
    redis.call('HDEL', hash, id, id .. ':rc', id .. ':fr', id .. ':meta')
    redis.pcall('HDEL', deliveries, id)
    reply[i] = 1
  end
end
return reply
