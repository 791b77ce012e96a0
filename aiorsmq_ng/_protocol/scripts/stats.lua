-- Describe a queue together with its dead letters and its consumers.
-- KEYS: zset, hash, dead zset, consumers. ARGV: how long a silent consumer counts as alive (ms).
-- Returns: {the snapshot of _attributes.lua, dead letters, then per living consumer: name,
--   ms since it was heard of, what it told of itself}. Consumers silent for longer are forgotten.
-- Errors: queueNotFound. Cost: as attributes.lua, and O(consumers).
local zset, hash, dead_zset, consumers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- @include clock
-- @include attributes
local snapshot = describe()
if type(snapshot) == 'string' then return snapshot end
local result = {snapshot, redis.call('ZCARD', dead_zset)}
-- pcall: a side key that is not ours to read must not stand in the way.
local known = redis.pcall('HGETALL', consumers)
if known.err then return result end
for i = 1, #known, 2 do
  local seen, told = string.match(known[i + 1], '^(%d+) (.*)$')
  local silent = now - (tonumber(seen) or 0)
  if silent > tonumber(ARGV[1]) then
    redis.pcall('HDEL', consumers, known[i])
  else
    result[#result + 1] = known[i]
    result[#result + 1] = math.max(0, silent)
    result[#result + 1] = told
  end
end
return result
