-- Change stored attributes, then describe the queue.
-- KEYS: zset, hash. ARGV: vt (s), delay (s), maxsize (bytes); '' leaves one as it is.
-- Returns: the snapshot of _attributes.lua. Errors: queueNotFound. Cost: as attributes.lua.
local zset, hash = KEYS[1], KEYS[2]
-- @include clock
-- @include attributes
-- Look before writing, so that a wrong type or a missing right changes nothing.
local snapshot = describe()
if type(snapshot) == 'string' then return snapshot end
local changes = {'modified', seconds}
snapshot[7] = seconds
for i, name in ipairs({'vt', 'delay', 'maxsize'}) do
  if ARGV[i] ~= '' then
    snapshot[i] = ARGV[i]
    changes[#changes + 1] = name
    changes[#changes + 1] = ARGV[i]
  end
end
redis.call('HSET', hash, unpack(changes))
return snapshot
