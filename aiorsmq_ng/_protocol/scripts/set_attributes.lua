-- Change stored attributes, then describe the queue.
-- KEYS: zset, hash, memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), vt (s), delay (s), maxsize (bytes); '' leaves one as it is.
-- Returns: the snapshot of _attributes.lua. Errors: queueNotFound. Cost: as attributes.lua.
local zset, hash = KEYS[1], KEYS[2]
-- @include clock
-- @include attributes
-- @include once
-- Look before writing, so that a wrong type or a missing right changes nothing.
local snapshot = describe()
if type(snapshot) == 'string' then return snapshot end
-- It was done before; what was changed since stays.
if recall() then return snapshot end
local changes = {'modified', seconds}
snapshot[7] = seconds
for i, name in ipairs({'vt', 'delay', 'maxsize'}) do
  if ARGV[i + 2] ~= '' then
    snapshot[i] = ARGV[i + 2]
    changes[#changes + 1] = name
    changes[#changes + 1] = ARGV[i + 2]
  end
end
redis.call('HSET', hash, unpack(changes))
remember('')
return snapshot
