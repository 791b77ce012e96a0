-- Describe a queue together with its dead letters and its consumers. Consumers that are silent for too long are removed.
-- KEYS: zset, hash, dead zset, consumers.
-- ARGV: how long a silent consumer counts as alive (ms).
-- Returns: {the snapshot as attributes returns it, number of dead letters, then per living consumer: name, ms since it
--   announced itself, its description of itself}.
-- Errors: queueNotFound.
-- Cost: as attributes, and O(consumers).
-- @include clock
-- @include describe_queue
local zset, hash, dead_zset, consumers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = server_time()
local snapshot = describe(zset, hash, now)
if type(snapshot) == 'string' then return snapshot end
local result = {snapshot, redis.call('ZCARD', dead_zset)}
-- pcall: a side key that the user may not read must not fail the script.
local known = redis.pcall('HGETALL', consumers)
if known.err then return result end
for i = 1, #known, 2 do
  local seen, description = string.match(known[i + 1], '^(%d+) (.*)$')
  local silent = now - (tonumber(seen) or 0)
  if silent > tonumber(ARGV[1]) then
    redis.pcall('HDEL', consumers, known[i])
  else
    result[#result + 1] = known[i]
    result[#result + 1] = math.max(0, silent)
    result[#result + 1] = description
  end
end
return result
