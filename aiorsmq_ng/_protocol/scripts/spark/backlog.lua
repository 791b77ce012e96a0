-- Count how much waits in a queue.
-- KEYS: zset, hash.
-- ARGV: none.
-- Returns: {time (epoch ms), visible messages, hidden messages}.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(log n).
-- @include clock
-- @include read_queue
local zset, hash = KEYS[1], KEYS[2]
local refused = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local visible = redis.call('ZCOUNT', zset, '-inf', now)
return {now, visible, redis.call('ZCARD', zset) - visible}
