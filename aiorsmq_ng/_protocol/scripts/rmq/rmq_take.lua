-- Take the oldest ready payloads into the unacked list of a connection. On a single server, a connection whose
-- heartbeat is gone takes nothing: a cleaner may be about to delete its list.
-- KEYS: ready list, unacked list, then on a single server the heartbeat of the connection.
-- ARGV: how many at most.
-- Returns: the payloads, oldest first; nil if the heartbeat is gone.
-- Errors: none.
-- Cost: O(payloads).
local ready, unacked, heartbeat = KEYS[1], KEYS[2], KEYS[3]
if heartbeat and redis.call('EXISTS', heartbeat) == 0 then return nil end
-- A full server refuses a move as the first write of a script. This is a write that changes nothing.
redis.call('LTRIM', unacked, 0, -1)
local taken = {}
for i = 1, tonumber(ARGV[1]) do
  local payload = redis.call('RPOPLPUSH', ready, unacked)
  if not payload then break end
  taken[i] = payload
end
return taken
