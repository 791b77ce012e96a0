-- Delete a queue with its messages and side keys, whatever is left of it, whatever the types.
-- KEYS: index, zset, hash, then side keys, last the memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), name.
-- Returns: 1 something was there, 0 nothing was; to a repeated call what the first attempt returned.
-- Cost: O(1), memory is freed in the background.
-- @include once
local before = recall()
if before then return tonumber(before) or 0 end
local listed = redis.call('SREM', KEYS[1], ARGV[3])
local removed = redis.call('UNLINK', KEYS[2], KEYS[3])
for i = 4, #KEYS - 1 do redis.call('UNLINK', KEYS[i]) end
local found = listed + removed > 0 and 1 or 0
remember(found)
return found
