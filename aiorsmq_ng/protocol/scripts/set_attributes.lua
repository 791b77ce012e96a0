-- Change stored attributes, then describe the queue.
-- KEYS: zset, hash. ARGV: vt (s), delay (s), maxsize (bytes); '' leaves one as it is.
-- Returns: the snapshot of _attributes.lua. Errors: queueNotFound. Cost: as attributes.lua.
local zset, hash = KEYS[1], KEYS[2]
-- @include clock
-- @include attributes
local present = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize')
if not (present[1] and present[2] and present[3]) then
  return 'queueNotFound'
end
redis.call('ZCARD', zset)
local changes = {'modified', seconds}
for i, name in ipairs({'vt', 'delay', 'maxsize'}) do
  if ARGV[i] ~= '' then
    changes[#changes + 1] = name
    changes[#changes + 1] = ARGV[i]
  end
end
redis.call('HSET', hash, unpack(changes))
return describe()
