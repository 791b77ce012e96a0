-- Empty the unacked list of a connection, slice by slice, and remove its registration with the queue once it is empty.
-- The list is never deleted: a consumer that is not quite dead may have just taken something.
-- KEYS: unacked list, ready list, set of consumers; on a single server also the heartbeat of the connection and the set
--   of queues that it consumes.
-- ARGV: how many at most, name of the queue, 'next' (to the old end of ready, in order: the holder gives them back) or
--   'last' (behind all that waits: the holder is dead, and is left alone if its heartbeat is back).
-- Returns: how many were moved, how many are left; -1, -1 if the connection is alive.
-- Errors: none.
-- Cost: O(payloads); callers ask for at most 100 so that other clients can go on.
local unacked, ready, consumers, heartbeat, queues = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local back = ARGV[3] == 'next'
if heartbeat and not back and redis.call('TTL', heartbeat) > 0 then return {-1, -1} end
redis.call('LLEN', ready)
-- A full server refuses a move as the first write of a script. This is a write that changes nothing.
redis.call('LTRIM', unacked, 0, -1)
local moved = 0
while moved < tonumber(ARGV[1]) do
  if back then
    local payload = redis.call('LPOP', unacked)
    if not payload then break end
    redis.call('RPUSH', ready, payload)
  elseif not redis.call('RPOPLPUSH', unacked, ready) then
    break
  end
  moved = moved + 1
end
local left = redis.call('LLEN', unacked)
if left == 0 then
  redis.call('DEL', consumers)
  if queues then redis.call('SREM', queues, ARGV[2]) end
end
return {moved, left}
