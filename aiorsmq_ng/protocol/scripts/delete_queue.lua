-- Delete a queue with its messages and side keys, whatever is left of it, whatever the types.
-- KEYS: index, zset, hash, then side keys. ARGV: name.
-- Returns: 1 something was there, 0 nothing was. Cost: O(1), memory is freed in the background.
local listed = redis.call('SREM', KEYS[1], ARGV[1])
local removed = redis.call('UNLINK', KEYS[2], KEYS[3])
for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
if listed + removed > 0 then
  return 1
end
return 0
