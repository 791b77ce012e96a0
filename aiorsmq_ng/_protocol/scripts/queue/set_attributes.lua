-- Change stored attributes, then describe the queue.
-- KEYS: zset, hash, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), vt (s), delay (s), maxsize (bytes); '' leaves one as it is.
-- Returns: the snapshot, as attributes does.
-- Errors: queueNotFound.
-- Cost: as attributes.
-- @include clock
-- @include describe_queue
-- @include idempotency
local zset, hash, memory = KEYS[1], KEYS[2], KEYS[3]
local now, seconds = server_time()
-- Read before the first write, so that a wrong type or a missing right changes nothing.
local snapshot = describe(zset, hash, now)
if type(snapshot) == 'string' then return snapshot end
-- An earlier attempt made the change; what other clients have changed since stays.
if recall(memory, ARGV[1], ARGV[2]) then return snapshot end
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
remember(memory, ARGV[1], ARGV[2], '')
return snapshot
