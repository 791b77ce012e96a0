-- End subscriptions of a topic. Their messages stay in their queues, unless they are to be deleted or there are none.
-- KEYS: topic, heard, gone, index, then per subscription zset, hash, deliveries.
-- ARGV: version that the caller knows, random characters, 1 to delete all messages, queue of the peer that becomes the
--   keeper ('' = no change), number of subscriptions, for each of them: queue, 1 to delete its messages, its last sign
--   in heard if it is taken for dead (else ''); then fields of heard to be removed.
-- Returns: messages left in the queues.
-- Errors: topicChanged.
-- Cost: O(subscriptions).
-- @include clock
-- @include topic_version
-- @include peer_liveness
-- @include allow_writes_when_full
-- @include headers
local topic, heard, gone, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local count, left = tonumber(ARGV[5]), 0
local now, seconds, micros = server_time()
if not version_is(topic, ARGV[1]) then return 'topicChanged' end
for i = 1, count do
  if not still_silent(heard, ARGV[3 + 3 * i], ARGV[5 + 3 * i]) then return 'topicChanged' end
  redis.call('ZCARD', KEYS[2 + 3 * i])
end
allow_writes_when_full(heard)
for i = 1, count do
  local queue, delete, sign = ARGV[3 + 3 * i], ARGV[4 + 3 * i], ARGV[5 + 3 * i]
  local present = redis.call('ZCARD', KEYS[2 + 3 * i])
  if ARGV[3] == '1' or delete == '1' or present == 0 then
    redis.call('UNLINK', KEYS[2 + 3 * i], KEYS[3 + 3 * i], KEYS[4 + 3 * i])
    drop_headers(KEYS[2 + 3 * i])
    redis.call('SREM', index, queue)
    redis.call('HDEL', topic, 'q:' .. queue)
    redis.call('HDEL', heard, queue)
  else
    local record = redis.call('HGET', topic, 'q:' .. queue) or ''
    redis.call('HSET', topic, 'q:' .. queue, (string.gsub(record, '^%a+', 'left')))
    left = left + present
  end
  if sign ~= '' then remember_dead_peer(gone, queue, now) else redis.call('ZREM', gone, queue) end
end
local settings, rest = string.match(redis.call('HGET', topic, 'q:' .. ARGV[4]) or '', '^(on broadcast %d+) %d(.*)$')
if settings then redis.call('HSET', topic, 'q:' .. ARGV[4], settings .. ' 1' .. rest) end
for i = 6 + 3 * count, #ARGV do redis.call('HDEL', heard, ARGV[i]) end
if count > 0 then renew_version(topic, seconds, micros, ARGV[2]) end
return left
