-- Take a waiter off that was called and has nobody waiting any more; others are called in its place.
-- KEYS: zset. ARGV: waiter. Returns: 1. Cost: O(log n).
local zset = KEYS[1]
-- @include clock
-- @include rouse
redis.pcall('ZREM', waiters_of(zset), ARGV[1])
rouse(zset)
return 1
