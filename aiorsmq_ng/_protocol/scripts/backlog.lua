-- Tell how much waits in a queue.
-- KEYS: zset, hash. ARGV: none. Returns: {time (ms), visible messages, hidden ones}.
-- Errors: queueNotFound, queueCorrupt. Cost: O(log n).
local zset, hash = KEYS[1], KEYS[2]
-- @include queue
-- @include clock
local visible = redis.call('ZCOUNT', zset, '-inf', now)
return {now, visible, redis.call('ZCARD', zset) - visible}
