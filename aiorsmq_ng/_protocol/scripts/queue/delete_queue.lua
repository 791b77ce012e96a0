-- Delete a queue with its messages and side keys, also an incomplete one, and keys of any type.
-- KEYS: index, zset, hash, moved, then other side keys, last the memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), name.
-- Returns: 1 something was there, 0 nothing was; to a repeated call what the first attempt returned.
-- Errors: none.
-- Cost: O(1); the server frees the memory in the background.
-- @include idempotency
local memory = KEYS[#KEYS]
local before = recall(memory, ARGV[1], ARGV[2])
if before then return tonumber(before) or 0 end
local listed = redis.call('SREM', KEYS[1], ARGV[3])
local removed = redis.call('UNLINK', KEYS[2], KEYS[3])
-- Messages that readers have moved out of the queue go with it.
local moved = call_side('HGETALL', KEYS[4]) or {}
for i = 1, #moved, 2 do
  local ledger = string.gsub(moved[i], ':ng:claim:(.*):%d+$', ':ng:ledger:%1')
  local group = string.gsub(ledger, ':ng:ledger:(.*)%.%x+$', ':ng:group:%1')
  redis.call('UNLINK', moved[i], moved[i] .. ':bodies', moved[i] .. ':bodies:long', ledger, group)
end
for i = 4, #KEYS - 1 do redis.call('UNLINK', KEYS[i]) end
local found = listed + removed > 0 and 1 or 0
remember(memory, ARGV[1], ARGV[2], found)
return found
