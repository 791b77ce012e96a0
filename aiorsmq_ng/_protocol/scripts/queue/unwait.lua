-- Remove a waiter that was woken, or was to look by now, and in whose client no call waits any more. Other waiters are
-- woken in its place.
-- KEYS: zset.
-- ARGV: waiter, 1 if it leaves for good, whenever it was to look.
-- Returns: 1.
-- Errors: none.
-- Cost: O(log n).
-- @include clock
-- @include wake_waiters
local zset = KEYS[1]
local now, _, micros = server_time()
-- It stays if it has scheduled a later look meanwhile: then a call waits again.
local at = redis.pcall('ZSCORE', waiters_of(zset), ARGV[1])
if type(at) == 'string' and (ARGV[2] == '1' or tonumber(at) <= now + MOMENT_MS) then
  redis.pcall('ZREM', waiters_of(zset), ARGV[1])
end
wake_waiters(zset, now, micros)
return 1
