-- Keep rows that were set aside for longer, because their job is about to commit.
-- KEYS: the lists that hold the rows.
-- ARGV: TTL (s).
-- Returns: how many of the lists exist.
-- Errors: none.
-- Cost: O(keys).
local kept = 0
for i = 1, #KEYS do kept = kept + redis.call('EXPIRE', KEYS[i], ARGV[1]) end
return kept
