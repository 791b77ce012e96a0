-- Remove side keys that nobody needs any more.
-- KEYS: the keys. ARGV: none. Returns: how many were there. Cost: O(keys), freed in the background.
local removed = 0
for i = 1, #KEYS do removed = removed + redis.call('UNLINK', KEYS[i]) end
return removed
