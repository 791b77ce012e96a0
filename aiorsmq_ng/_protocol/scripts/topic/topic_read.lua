-- Read what is stored about a topic.
-- KEYS: topic, heard, own zset.
-- ARGV: none.
-- Returns: {now (ms, as text), messages in its own queue, its fields and values, peers and their last signs}.
-- Errors: none.
-- Cost: O(subscriptions + peers).
-- @include clock
local now = server_time()
return {string.format('%.0f', now), redis.call('ZCARD', KEYS[3]), redis.call('HGETALL', KEYS[1]),
  redis.call('HGETALL', KEYS[2])}
