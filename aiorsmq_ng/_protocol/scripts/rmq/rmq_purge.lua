-- Delete the oldest payloads of a list of rmq.
-- KEYS: list.
-- ARGV: how many at most.
-- Returns: how many were deleted.
-- Errors: none.
-- Cost: O(payloads); callers ask for at most 1000 so that other clients can go on.
local length, count = redis.call('LLEN', KEYS[1]), tonumber(ARGV[1])
redis.call('LTRIM', KEYS[1], 0, -1 - count)
return math.min(length, count)
