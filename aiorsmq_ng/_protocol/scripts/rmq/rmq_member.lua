-- Add a name to a set of rmq, or remove it.
-- KEYS: set; to remove the name of a dead connection on a single server also its heartbeat.
-- ARGV: 'add' or 'remove', the name.
-- Returns: 1 if that changed the set, 0 if not; -1 if the connection is alive, and stays.
-- Errors: none.
-- Cost: O(1).
if KEYS[2] and redis.call('TTL', KEYS[2]) > 0 then return -1 end
return redis.call(ARGV[1] == 'add' and 'SADD' or 'SREM', KEYS[1], ARGV[2])
