-- Set how much may wait in a topic's own queue; what is '' stays as it is.
-- KEYS: topic, topics, index, own zset, own hash.
-- ARGV: name of the topic, its own queue, messages at most (-1 = any number), age at most (ms, -1 = any), maxsize of the
--   own queue (bytes).
-- Returns: 1.
-- Errors: none.
-- Cost: O(1).
-- @include clock
-- @include fill_attributes
local topic = KEYS[1]
local _, seconds = server_time()
redis.call('ZCARD', KEYS[4])
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('SADD', KEYS[3], ARGV[2])
fill_attributes(KEYS[5], 30, 0, 65536, seconds)
if ARGV[5] ~= '' then redis.call('HSET', KEYS[5], 'maxsize', ARGV[5], 'modified', seconds) end
for i, field in ipairs({'max_length', 'max_age_ms'}) do
  local limit = ARGV[2 + i]
  if limit == '-1' then
    redis.call('HDEL', topic, field)
  elseif limit ~= '' then
    redis.call('HSET', topic, field, limit)
  end
end
return 1
