-- Create a queue, or complete one that another client left half-created: fill in what is missing, list it.
-- KEYS: index, zset, hash, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), name, vt (s), delay (s), maxsize (bytes).
-- Returns: 1 created or completed, 0 it existed; to a repeated call what the first attempt returned.
-- Errors: none.
-- Cost: O(1).
-- @include clock
-- @include idempotency
-- @include fill_attributes
local index, zset, hash, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local _, seconds = server_time()
local before = recall(memory, ARGV[1], ARGV[2])
if before then return tonumber(before) or 0 end
local present = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize', 'created', 'modified')
-- Read the other keys before the first write, so that a wrong type changes nothing.
redis.call('ZCARD', zset)
local listed = redis.call('SISMEMBER', index, ARGV[3]) == 1
if listed and present[1] and present[2] and present[3] and present[4] and present[5] then
  -- Nothing to write, so a server that is out of memory answers, too. An earlier attempt that is still on its way must
  -- not create the queue after another client has deleted it.
  if ARGV[2] ~= '1' then forget(memory, ARGV[1], ARGV[2]) end
  return 0
end
redis.call('SADD', index, ARGV[3])
fill_attributes(hash, ARGV[4], ARGV[5], ARGV[6], seconds)
local created = (present[1] and present[2] and present[3]) and 0 or 1
remember(memory, ARGV[1], ARGV[2], created)
return created
