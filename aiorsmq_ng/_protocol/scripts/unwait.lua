-- Take a waiter off that was called, or was to look by now, and in whose client no call waits any more; others come
-- in its place.
-- KEYS: zset. ARGV: waiter, 1 if it leaves for good, whenever it was to look. Returns: 1. Cost: O(log n).
local zset = KEYS[1]
-- @include clock
-- @include rouse
-- Unless it has found somebody to wait for meanwhile.
local at = redis.pcall('ZSCORE', waiters_of(zset), ARGV[1])
if type(at) == 'string' and (ARGV[2] == '1' or tonumber(at) <= now + MOMENT_MS) then
  redis.pcall('ZREM', waiters_of(zset), ARGV[1])
end
rouse(zset)
return 1
