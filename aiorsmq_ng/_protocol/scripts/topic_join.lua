-- Add a subscription to a topic. The first one gets what waits in the topic's own queue. A long queue is
-- moved in steps: then the caller must come again, and is not subscribed yet. Meanwhile no other one
-- gets any of what waits. If it is to be kept for a while, consumers that subscribe so late get it, too.
-- KEYS: topic, heard, topics, index, own zset, own hash, zset, hash, gone, kept ids, kept bodies, own deliveries,
--   deliveries.
-- ARGV: version that the caller knows, random characters, name of the topic, queue, record (without the
--   state and the time), field of the peer in heard (empty: none), vt (s), delay (s), maxsize, 1 if it is
--   the first, messages in one step, wake-up channel, queue of the consumer's keeper (empty: none),
--   how long what waited is kept for other consumers (ms, 0: not, and what others keep is not for this one).
-- Returns: 1 subscribed, 0 come again, -1 come again a little later. Errors: topicChanged. Cost: O(1), or O(messages in a step).
local topic, heard, topics, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local zset, hash, queue, keeper = KEYS[5], KEYS[6], ARGV[4], ARGV[13]
local own, new = {KEYS[5], KEYS[6], KEYS[12]}, {KEYS[7], KEYS[8], KEYS[13]}
local kept, ttl = {KEYS[10], KEYS[11]}, tonumber(ARGV[14])
local mode, silence, consumer = string.match(ARGV[5], '^(%a+) (%d+) %d (%S+) ')
silence = tonumber(silence)
-- @include clock
-- @include rouse
-- @include topic_changed
-- @include absorb
-- @include kept
-- @include signs
-- @include trim
if not version_is(ARGV[1]) then return 'topicChanged' end
-- The caller that moves a long backlog has all of it to itself, unless it makes no step for 10 s.
if ARGV[10] == '1' then
  local who, at = string.match(redis.call('HGET', topic, 'first') or '', '^(%S+) (%d+)$')
  if who and who ~= queue and now - at < 10000 then return -1 end
end
-- Touch all keys before writing, so that a wrong type changes nothing.
for at = 5, 7, 2 do
  redis.call('ZCARD', KEYS[at])
  redis.call('HEXISTS', KEYS[at + 1], 'vt')
end
redis.call('SADD', topics, ARGV[3])
redis.call('SADD', index, queue)
redis.call('HSETNX', KEYS[8], 'vt', ARGV[7])
redis.call('HSETNX', KEYS[8], 'delay', ARGV[8])
redis.call('HSETNX', KEYS[8], 'maxsize', ARGV[9])
redis.call('HSETNX', KEYS[8], 'created', seconds)
redis.call('HSETNX', KEYS[8], 'modified', seconds)
local known = redis.call('HGET', topic, 'q:' .. queue) or ''
local since = string.match(known, '^on .* (%d+)$')
if mode == 'each' then
  local _, gap = tick(consumer, queue, silence)
  local allowed = string.match(redis.call('HGET', topic, 'q:' .. keeper) or '', '^on each (%d+) ')
  -- No peer was heard of for so long: a newcomer takes the keeper's place, unless that speaks up now.
  if not since and allowed and gap > tonumber(allowed) then
    local last = string.match(redis.call('HGET', heard, keeper) or '', '%d+$') or '0'
    redis.call('HSET', heard, keeper, '0 ' .. last)
  end
elseif ARGV[6] ~= '' then
  hear(ARGV[6], queue, silence)
end
if since then
  redis.call('HSET', topic, 'q:' .. queue, 'on ' .. ARGV[5] .. ' ' .. since)
  return 1
end
-- Later than all that was published before, also if the clock was set back.
since = math.max(seconds * 1000000 + micros, tonumber(redis.call('HGET', topic, 'last') or 0))
local record = string.format('%s %.0f', ARGV[5], since)
if ARGV[10] == '1' and not (trim() and keep(own, kept, consumer, ttl) and absorb(own, new, tonumber(ARGV[11]))) then
  -- Should the caller not come, others find what this queue holds by now.
  redis.call('HSET', topic, 'q:' .. queue, 'left ' .. record, 'first', string.format('%s %.0f', queue, now))
  return 0
end
if ttl > 0 then hand(kept, new, consumer) end
redis.call('HSET', topic, 'q:' .. queue, 'on ' .. record)
redis.call('HDEL', topic, 'first')
redis.call('ZREM', KEYS[9], queue)
changed(ARGV[2])
local present = redis.call('ZCARD', KEYS[7])
if present > 0 then
  redis.pcall('PUBLISH', ARGV[12], present)
  rouse(KEYS[7])
end
return 1
