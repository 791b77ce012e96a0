-- Set how much may wait in a topic's own queue.
-- KEYS: topic, topics, index, own zset, own hash. ARGV: name of the topic, its own queue, messages at most
--   (empty: any number), age at most (ms, empty: any), maxsize of the own queue (empty: as it is).
-- Returns: 1. Cost: O(1).
local topic = KEYS[1]
-- @include clock
redis.call('ZCARD', KEYS[4])
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('SADD', KEYS[3], ARGV[2])
redis.call('HSETNX', KEYS[5], 'vt', 30)
redis.call('HSETNX', KEYS[5], 'delay', 0)
redis.call('HSETNX', KEYS[5], 'maxsize', 65536)
redis.call('HSETNX', KEYS[5], 'created', seconds)
redis.call('HSETNX', KEYS[5], 'modified', seconds)
if ARGV[5] ~= '' then redis.call('HSET', KEYS[5], 'maxsize', ARGV[5], 'modified', seconds) end
for i, field in ipairs({'max_length', 'max_age_ms'}) do
  if ARGV[2 + i] == '' then
    redis.call('HDEL', topic, field)
  else
    redis.call('HSET', topic, field, ARGV[2 + i])
  end
end
return 1
