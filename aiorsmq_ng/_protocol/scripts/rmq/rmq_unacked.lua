-- Read what a connection holds of a queue of rmq.
-- KEYS: unacked list, set of consumers.
-- ARGV: '1' to read the payloads, too.
-- Returns: length of the list, names of the consumers, payloads (oldest first).
-- Errors: none.
-- Cost: O(consumers), with payloads O(payloads).
local payloads = ARGV[1] == '1' and redis.call('LRANGE', KEYS[1], 0, -1) or {}
local oldest_first = {}
for i = #payloads, 1, -1 do oldest_first[#oldest_first + 1] = payloads[i] end
return {redis.call('LLEN', KEYS[1]), redis.call('SMEMBERS', KEYS[2]), oldest_first}
