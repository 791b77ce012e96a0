-- Create a queue, or heal what another client left half-made: fill in what is missing, list it.
-- KEYS: index, zset, hash, memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), name, vt (s), delay (s), maxsize (bytes).
-- Returns: 1 created (or completed), 0 it existed; to a repeated call what the first attempt returned.
-- Cost: O(1).
local index, zset, hash = KEYS[1], KEYS[2], KEYS[3]
-- @include clock
-- @include once
local before = recall()
if before then return tonumber(before) or 0 end
local present = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize', 'created', 'modified')
-- Touch the other keys before writing, so that a wrong type changes nothing.
redis.call('ZCARD', zset)
local listed = redis.call('SISMEMBER', index, ARGV[3]) == 1
if listed and present[1] and present[2] and present[3] and present[4] and present[5] then
  -- Nothing to write, so a server that is out of memory answers, too. An earlier attempt that is still on
  -- its way must not create the queue after somebody has deleted it.
  if again then forget() end
  return 0
end
redis.call('SADD', index, ARGV[3])
redis.call('HSETNX', hash, 'vt', ARGV[4])
redis.call('HSETNX', hash, 'delay', ARGV[5])
redis.call('HSETNX', hash, 'maxsize', ARGV[6])
redis.call('HSETNX', hash, 'created', seconds)
redis.call('HSETNX', hash, 'modified', seconds)
local created = (present[1] and present[2] and present[3]) and 0 or 1
remember(created)
return created
