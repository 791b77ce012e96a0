-- Lease ready messages. Each part is one caller's receive; earlier parts are served first. A message
-- that was received max_receives times already goes to the dead-letter queue instead.
-- KEYS: zset, hash, deliveries, and with max_receives: dead zset, dead hash, index.
-- ARGV: max_receives (0 = no limit), dead-letter queue's name, its wake-up channel,
--   then per part: count, vt (ms, -1 = the queue's).
-- Returns: the replies of _lease.lua. Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include bury
-- @include lease
local dead, parts = nil, {}
if ARGV[1] ~= '0' then
  dead = {limit = tonumber(ARGV[1]), name = ARGV[2], channel = ARGV[3],
    zset = KEYS[4], hash = KEYS[5], index = KEYS[6]}
end
for i = 4, #ARGV do parts[i - 3] = ARGV[i] end
return lease(KEYS[1], KEYS[2], KEYS[3], parts, dead)
