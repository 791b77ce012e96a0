-- Count how much waits in a queue.
-- KEYS: zset, hash.
-- ARGV: none.
-- Returns: {time (epoch ms), visible messages, hidden messages, how long the first one has been visible (ms)}.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(log n).
-- @include clock
-- @include read_queue
local zset, hash = KEYS[1], KEYS[2]
local refused = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local visible = redis.call('ZCOUNT', zset, '-inf', now)
local first = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
local age = visible > 0 and now - math.floor(tonumber(first[2])) or 0
return {now, visible, redis.call('ZCARD', zset) - visible, age}
