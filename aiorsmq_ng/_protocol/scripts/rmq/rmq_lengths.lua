-- Count what a queue of rmq holds.
-- KEYS: ready list, rejected list.
-- ARGV: none.
-- Returns: ready, rejected.
-- Errors: none.
-- Cost: O(1).
return {redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2])}
