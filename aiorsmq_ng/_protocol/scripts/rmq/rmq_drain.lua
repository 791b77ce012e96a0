-- Take and delete the oldest ready payloads: at most once, nothing brings them back.
-- KEYS: ready list.
-- ARGV: how many at most.
-- Returns: the payloads, oldest first.
-- Errors: none.
-- Cost: O(payloads).
local taken = {}
for i = 1, tonumber(ARGV[1]) do
  local payload = redis.call('RPOP', KEYS[1])
  if not payload then break end
  taken[i] = payload
end
return taken
