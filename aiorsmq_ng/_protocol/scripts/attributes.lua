-- Describe a queue.
-- KEYS: zset, hash. ARGV: none.
-- Returns: the snapshot of _attributes.lua. Errors: queueNotFound. Cost: O(log n + hidden <= 4096).
local zset, hash = KEYS[1], KEYS[2]
-- @include clock
-- @include attributes
local found = describe()
-- As in _queue.lua: a key of another type is an error.
if found == 'queueNotFound' then redis.call('ZCARD', zset) end
return found
