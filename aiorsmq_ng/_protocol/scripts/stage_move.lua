-- Turn rows that were set aside into messages, in order.
-- KEYS: zset, hash, staged. ARGV: wake-up channel, how many rows at most.
-- Returns: rows left. Errors: queueNotFound, queueCorrupt. Cost: O(rows * log n), at most 2000 rows.
local zset, hash, staged = KEYS[1], KEYS[2], KEYS[3]
-- @include queue
-- @include clock
-- @include rouse
-- @include store
local rows = redis.call('LRANGE', staged, 0, 3 * tonumber(ARGV[2]) - 1)
if #rows == 0 then return 0 end
redis.call('LTRIM', staged, #rows, -1)
store(rows, 1, #rows, ARGV[1])
return redis.call('LLEN', staged) / 3
