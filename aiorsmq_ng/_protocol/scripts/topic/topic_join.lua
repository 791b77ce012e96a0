-- Add a subscription to a topic. The first one gets the backlog in the topic's own queue. A long backlog is moved in steps:
-- then the caller must call again, and is not subscribed yet; meanwhile no other subscription gets any of it. If the
-- backlog is retained for a while, consumers that subscribe within that time get it, too.
-- KEYS: topic, heard, topics, index, own zset, own hash, zset, hash, gone, kept ids, kept bodies, own deliveries, deliveries.
-- ARGV: version that the caller knows, random characters, name of the topic, queue, record (without the state and the
--   time), field of the peer in heard ('' = none), vt (s), delay (s), maxsize (bytes), 1 if it is the first subscription,
--   messages in one step, wake-up channel, queue of the consumer's keeper ('' = none), how long the backlog is
--   retained for other consumers (ms; 0 = not, and this one gets no retained backlog).
-- Returns: 1 subscribed, 0 call again, -1 call again a little later.
-- Errors: topicChanged.
-- Cost: O(1), or O(messages in a step).
-- @include clock
-- @include fill_attributes
-- @include topic_version
-- @include peer_liveness
-- @include merge_queues
-- @include retain_backlog
-- @include trim_backlog
-- @include wake_waiters
local topic, heard, topics, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local queue, keeper = ARGV[4], ARGV[13]
local own, new = {KEYS[5], KEYS[6], KEYS[12]}, {KEYS[7], KEYS[8], KEYS[13]}
local kept, ttl = {KEYS[10], KEYS[11]}, tonumber(ARGV[14])
local mode, timeout_ms, consumer = string.match(ARGV[5], '^(%a+) (%d+) %d (%S+) ')
timeout_ms = tonumber(timeout_ms)
local now, seconds, micros = server_time()
if not version_is(topic, ARGV[1]) then return 'topicChanged' end
-- The caller that moves a long backlog gets all of it, unless it makes no step for 10 s.
if ARGV[10] == '1' then
  local who, at = string.match(redis.call('HGET', topic, 'first') or '', '^(%S+) (%d+)$')
  if who and who ~= queue and now - at < 10000 then return -1 end
end
-- Read all keys before the first write, so that a wrong type changes nothing.
for at = 5, 7, 2 do
  redis.call('ZCARD', KEYS[at])
  redis.call('HEXISTS', KEYS[at + 1], 'vt')
end
redis.call('SADD', topics, ARGV[3])
redis.call('SADD', index, queue)
fill_attributes(KEYS[8], ARGV[7], ARGV[8], ARGV[9], seconds)
local known = redis.call('HGET', topic, 'q:' .. queue) or ''
local since = string.match(known, '^on .* (%d+)$')
if mode == 'broadcast' then
  local _, gap = record_sign(heard, consumer, queue, timeout_ms, now)
  local allowed = string.match(redis.call('HGET', topic, 'q:' .. keeper) or '', '^on broadcast (%d+) ')
  -- All peers were silent for longer than the timeout: a newcomer becomes the keeper, unless the present one shows a
  -- sign of life now. A clock of 0 makes it look silent.
  if not since and allowed and gap > tonumber(allowed) then
    local last = string.match(redis.call('HGET', heard, keeper) or '', '%d+$') or '0'
    redis.call('HSET', heard, keeper, '0 ' .. last)
  end
elseif ARGV[6] ~= '' then
  record_shared_sign(heard, ARGV[6], queue, timeout_ms, now)
end
if since then
  redis.call('HSET', topic, 'q:' .. queue, 'on ' .. ARGV[5] .. ' ' .. since)
  return 1
end
-- Later than all that was published before, also if the clock was set back.
since = math.max(seconds * 1000000 + micros, tonumber(redis.call('HGET', topic, 'last') or 0))
local record = string.format('%s %.0f', ARGV[5], since)
if ARGV[10] == '1' and not (trim_backlog(topic, own[1], own[2], now) and retain_backlog(own, kept, consumer, ttl)
  and merge_queues(own, new, tonumber(ARGV[11]))) then
  -- If the caller does not call again, others find what this queue holds by now.
  redis.call('HSET', topic, 'q:' .. queue, 'left ' .. record, 'first', string.format('%s %.0f', queue, now))
  return 0
end
if ttl > 0 then copy_retained(kept, new, consumer) end
redis.call('HSET', topic, 'q:' .. queue, 'on ' .. record)
redis.call('HDEL', topic, 'first')
redis.call('ZREM', KEYS[9], queue)
renew_version(topic, seconds, micros, ARGV[2])
local present = redis.call('ZCARD', KEYS[7])
if present > 0 then
  redis.pcall('PUBLISH', ARGV[12], present)
  wake_waiters(KEYS[7], now, micros)
end
return 1
