-- Delete a topic with all its subscriptions and messages.
-- KEYS: topic, heard, gone, topics, index, then per queue zset, hash, deliveries; the first is the topic's own; last the
--   retained backlog (kept ids, kept bodies).
-- ARGV: version that the caller knows, name of the topic, queues.
-- Returns: 1 something was there, 0 nothing was.
-- Errors: topicChanged.
-- Cost: O(queues); the server frees the memory in the background.
-- @include topic_version
-- @include headers
local topic = KEYS[1]
if not version_is(topic, ARGV[1]) then return 'topicChanged' end
local found = redis.call('SREM', KEYS[4], ARGV[2])
for i = 3, #ARGV do found = found + redis.call('SREM', KEYS[5], ARGV[i]) end
for i = 6, #KEYS do redis.call('UNLINK', KEYS[i]) end
for i = 6, #KEYS - 2, 3 do drop_headers(KEYS[i]) end
drop_headers(KEYS[#KEYS - 1])
found = found + redis.call('UNLINK', topic, KEYS[2], KEYS[3])
return found > 0 and 1 or 0
