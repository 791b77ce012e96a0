-- Take a waiter off that was called and in whose client no call waits any more; others are called in its place.
-- KEYS: zset. ARGV: waiter. Returns: 1. Cost: O(log n).
local zset = KEYS[1]
-- @include clock
-- @include rouse
-- Unless it has found somebody to wait for meanwhile.
local at = redis.pcall('ZSCORE', waiters_of(zset), ARGV[1])
if type(at) == 'string' and tonumber(at) <= now + MOMENT_MS then redis.pcall('ZREM', waiters_of(zset), ARGV[1]) end
rouse(zset)
return 1
