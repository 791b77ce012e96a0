-- Check that a queue exists: vt, delay and maxsize are all stored. Reads by HMGET only, so every user with a right on
-- the queue may ask.
-- KEYS: hash.
-- ARGV: none.
-- Returns: 1 or 0.
-- Errors: none.
-- Cost: O(1).
local stored = redis.call('HMGET', KEYS[1], 'vt', 'delay', 'maxsize')
return (stored[1] and stored[2] and stored[3]) and 1 or 0
