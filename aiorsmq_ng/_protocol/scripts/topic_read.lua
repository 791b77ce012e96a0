-- Tell what is stored about a topic.
-- KEYS: topic, heard, own zset. ARGV: none.
-- Returns: {now (ms), messages in its own queue, its fields and values, peers and when they were heard of}.
-- Cost: O(subscriptions + peers).
-- @include clock
return {string.format('%.0f', now), redis.call('ZCARD', KEYS[3]), redis.call('HGETALL', KEYS[1]),
  redis.call('HGETALL', KEYS[2])}
