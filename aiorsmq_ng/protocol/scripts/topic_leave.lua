-- End subscriptions of a topic. What they hold stays in their queues, unless it is to be discarded; an
-- empty queue is deleted.
-- KEYS: topic, heard, index, then per subscription zset, hash, deliveries.
-- ARGV: version that the caller knows, random characters, 1 to discard, number of subscriptions, their
--   queues, then fields of heard to be removed.
-- Returns: messages left in the queues. Errors: topicChanged. Cost: O(subscriptions).
local topic, heard, index = KEYS[1], KEYS[2], KEYS[3]
local count, left = tonumber(ARGV[4]), 0
-- @include clock
-- @include topic_changed
-- @include silent
if not version_is(ARGV[1]) then return 'topicChanged' end
for i = 1, count do redis.call('ZCARD', KEYS[1 + 3 * i]) end
-- See _spend.lua: a full server takes what follows.
redis.call('HDEL', heard, '')
for i = 1, count do
  local queue, present = ARGV[4 + i], redis.call('ZCARD', KEYS[1 + 3 * i])
  if ARGV[3] == '1' or present == 0 then
    redis.call('UNLINK', KEYS[1 + 3 * i], KEYS[2 + 3 * i], KEYS[3 + 3 * i])
    redis.call('SREM', index, queue)
  end
  if ARGV[3] ~= '1' and present > 0 then
    put_off(queue, 'left')
  else
    redis.call('HDEL', topic, 'q:' .. queue)
    redis.call('HDEL', heard, queue)
  end
  if ARGV[3] ~= '1' then left = left + present end
end
for i = 5 + count, #ARGV do redis.call('HDEL', heard, ARGV[i]) end
if count > 0 then changed(ARGV[2]) end
return left
