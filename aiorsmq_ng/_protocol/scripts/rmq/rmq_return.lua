-- Move payloads back to the ready list, the oldest first, behind all that waits there.
-- KEYS: list to take from, ready list, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), how many at most.
-- Returns: how many were moved; to a repeated call what the first attempt moved.
-- Errors: none.
-- Cost: O(payloads); callers ask for at most 100 so that other clients can go on.
-- @include idempotency
local from, ready, memory = KEYS[1], KEYS[2], KEYS[3]
redis.call('LLEN', ready)
local before = recall(memory, ARGV[1], ARGV[2])
if before then return tonumber(before) or 0 end
-- A full server refuses a move as the first write of a script. This is a write that changes nothing.
redis.call('LTRIM', from, 0, -1)
local moved = 0
while moved < tonumber(ARGV[3]) and redis.call('RPOPLPUSH', from, ready) do moved = moved + 1 end
remember(memory, ARGV[1], ARGV[2], moved)
return moved
