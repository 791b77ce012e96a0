-- Tell why a message was rejected into this queue.
-- KEYS: reason. ARGV: none. Returns: {the text, or nil}. Cost: O(1).
return {redis.call('GET', KEYS[1])}
