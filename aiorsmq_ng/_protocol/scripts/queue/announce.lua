-- Store that a consumer is alive, or remove it. With 1000 names all are removed: living consumers announce themselves
-- again within 10 s. Nothing is stored if consumers is a key of another type.
-- KEYS: consumers, hash.
-- ARGV: name, the consumer's description of itself ('' = it has gone), TTL of the whole key (s).
-- Returns: 1, or 0 if there is no such queue.
-- Errors: none.
-- Cost: O(1).
-- @include clock
-- @include side_key
local consumers, name = KEYS[1], ARGV[1]
if redis.call('HEXISTS', KEYS[2], 'vt') == 0 then return 0 end
if ARGV[2] == '' then
  call_side('HDEL', consumers, name)
else
  local known = call_side('HLEN', consumers)
  if not known then return 1 end
  if known >= 1000 and redis.call('HEXISTS', consumers, name) == 0 then redis.call('DEL', consumers) end
  redis.call('HSET', consumers, name, string.format('%.0f %s', server_time(), ARGV[2]))
  redis.call('EXPIRE', consumers, ARGV[3])
end
return 1
