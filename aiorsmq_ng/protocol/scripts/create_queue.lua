-- Create a queue, or heal what another client left half-made: fill in what is missing, list it.
-- KEYS: index, zset, hash. ARGV: name, vt (s), delay (s), maxsize (bytes).
-- Returns: 1 created (or completed), 0 it existed. Cost: O(1).
local index, zset, hash = KEYS[1], KEYS[2], KEYS[3]
-- @include clock
local present = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize')
-- Touch the other keys before writing, so that a wrong type changes nothing.
redis.call('ZCARD', zset)
redis.call('SADD', index, ARGV[1])
redis.call('HSETNX', hash, 'vt', ARGV[2])
redis.call('HSETNX', hash, 'delay', ARGV[3])
redis.call('HSETNX', hash, 'maxsize', ARGV[4])
redis.call('HSETNX', hash, 'created', seconds)
redis.call('HSETNX', hash, 'modified', seconds)
if present[1] and present[2] and present[3] then
  return 0
end
return 1
