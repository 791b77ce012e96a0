-- End the commit of an epoch: all of its rows are messages now.
-- KEYS: epochs.
-- ARGV: epoch, TTL (s).
-- Returns: 1.
-- Errors: none.
-- Cost: O(1).
local done = tonumber(redis.call('HGET', KEYS[1], 'done') or -1)
redis.call('HSET', KEYS[1], 'done', string.format('%.0f', math.max(done, tonumber(ARGV[1]))))
redis.call('HDEL', KEYS[1], 'begun:' .. ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
