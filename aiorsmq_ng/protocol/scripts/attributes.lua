-- Describe a queue.
-- KEYS: zset, hash. ARGV: none.
-- Returns: the snapshot of _attributes.lua. Errors: queueNotFound. Cost: O(log n + hidden <= 4096).
local zset, hash = KEYS[1], KEYS[2]
-- @include clock
-- @include attributes
return describe()
