-- Describe a queue.
-- KEYS: zset, hash.
-- ARGV: none.
-- Returns: the snapshot {vt (s), delay (s), maxsize (bytes), totalrecv, totalsent, created, modified (epoch s), all as
--   stored or '' if absent; messages, hidden ones, leased ones, 1 if that number is exact or 0 if it is an upper
--   bound, age of the first ready message (ms) or -1}.
-- Errors: queueNotFound.
-- Cost: O(log n + hidden messages, at most 4096).
-- @include clock
-- @include describe_queue
local zset, hash = KEYS[1], KEYS[2]
local found = describe(zset, hash, (server_time()))
-- A key of another type is an error, not a missing queue: let the server report it.
if found == 'queueNotFound' then redis.call('ZCARD', zset) end
return found
