-- Look whether a connection of rmq is alive: its heartbeat exists and has a TTL.
-- KEYS: heartbeat.
-- ARGV: none.
-- Returns: 1 or 0.
-- Errors: none.
-- Cost: O(1).
return redis.call('TTL', KEYS[1]) > 0 and 1 or 0
