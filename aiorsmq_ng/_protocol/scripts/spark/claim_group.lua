-- Make a new ledger the valid one of a named reader, if the one before is the expected one.
-- KEYS: group, ledger.
-- ARGV: the id expected ('' = none), the new id ('' = only ask), lease or move, TTL (s).
-- Returns: {1} done, or {0, the id that is valid now}.
-- Errors: none.
-- Cost: O(1).
local group, ledger = KEYS[1], KEYS[2]
local current = redis.call('GET', group) or ''
if current == ARGV[2] then return {1} end
if current ~= ARGV[1] then return {0, current} end
-- The ledger first: if a command fails, the group does not name a ledger that is not there.
redis.call('HSET', ledger, 'fence', 1, 'acked', 0, 'mode', ARGV[3], 'ttl', ARGV[4], 'group', group)
redis.call('SET', group, ARGV[2])
-- It holds nothing yet.
redis.call('EXPIRE', group, ARGV[4])
redis.call('EXPIRE', ledger, ARGV[4])
return {1}
