-- List the queues of a namespace.
-- KEYS: index. ARGV: none.
-- Returns: the names, unordered. Cost: O(queues).
return redis.call('SMEMBERS', KEYS[1])
