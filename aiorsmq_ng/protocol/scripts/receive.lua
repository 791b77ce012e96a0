-- Lease ready messages. Each part is one caller's receive; earlier parts are served first.
-- KEYS: zset, hash, deliveries. ARGV per part: count, vt (ms, -1 = the queue's).
-- Returns: the replies of _lease.lua. Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include lease
return lease(KEYS[1], KEYS[2], KEYS[3], ARGV)
