-- Remove side keys that are not needed any more.
-- KEYS: the keys.
-- ARGV: none.
-- Returns: how many existed.
-- Errors: none.
-- Cost: O(keys); the server frees the memory in the background.
local removed = 0
for i = 1, #KEYS do removed = removed + redis.call('UNLINK', KEYS[i]) end
return removed
