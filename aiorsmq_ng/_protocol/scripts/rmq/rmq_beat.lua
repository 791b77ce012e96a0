-- Renew the heartbeat of a connection. One that has expired is not revived, because a cleaner may be at work on what the
-- connection held.
-- KEYS: heartbeat.
-- ARGV: TTL (s), '1' for the first heartbeat of a new connection.
-- Returns: 1 if the connection is alive, 0 if its heartbeat had expired.
-- Errors: none.
-- Cost: O(1).
if ARGV[2] ~= '1' and redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('SET', KEYS[1], '1', 'EX', ARGV[1])
return 1
