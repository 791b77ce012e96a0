-- Read the names in a set of rmq.
-- KEYS: set.
-- ARGV: none.
-- Returns: the names.
-- Errors: none.
-- Cost: O(names).
return redis.call('SMEMBERS', KEYS[1])
