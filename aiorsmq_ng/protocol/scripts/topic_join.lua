-- Add a subscription to a topic. The first one gets what waits in the topic's own queue; a peer with
-- copies of its own gets what one that has gone left behind. Long queues are moved in steps: then the
-- caller is told to come again, and is not subscribed yet. Meanwhile no other one gets any of what waits.
-- KEYS: topic, heard, topics, index, own zset, own hash, zset, hash, then those of the queue to be taken
--   over, if any.
-- ARGV: version that the caller knows, random characters, name of the topic, queue, record (without the
--   state and the time), field of the peer in heard (empty: none), vt (s), delay (s), maxsize, 1 if it is
--   the first, queue to be taken over (empty: none), when that was heard of (ms), messages in one step,
--   wake-up channel, consumer if this is the first sign of it after a long time (else empty), then queues
--   of which nothing need be known any more.
-- Returns: 1 subscribed, 0 come again, -1 come again a little later. Errors: topicChanged. Cost: O(1), or O(messages in a step).
local topic, heard, topics, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local zset, hash = KEYS[5], KEYS[6]
local queue, field, heir, page = ARGV[4], ARGV[6], ARGV[11], tonumber(ARGV[13])
-- @include clock
-- @include rouse
-- @include topic_changed
-- @include absorb
-- @include silent
-- @include trim
if not version_is(ARGV[1]) then return 'topicChanged' end
if heir ~= '' and (redis.call('HGET', heard, heir) or '') ~= ARGV[12] then return 'topicChanged' end
-- Whoever moves a long backlog has all of it to itself, unless it makes no step for 10 s.
if ARGV[10] == '1' then
  local who, at = string.match(redis.call('HGET', topic, 'first') or '', '^(%S+) (%d+)$')
  if who and who ~= queue and who ~= heir and now - at < 10000 then return -1 end
end
-- Touch all keys before writing, so that a wrong type changes nothing.
for at = 5, #KEYS, 2 do
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
for i = 16, #ARGV do
  redis.call('HDEL', topic, 'q:' .. ARGV[i])
  redis.call('HDEL', heard, ARGV[i])
end
if field ~= '' then hear(field, queue, tonumber(string.match(ARGV[5], '^%a+ (%d+)'))) end
-- See _silent.lua. Siblings that are only noted by a newcomer can still be taken over by the next.
if ARGV[15] ~= '' then redis.call('HSET', heard, 'again:' .. ARGV[15], string.format('%.0f new', now)) end
local known = redis.call('HGET', topic, 'q:' .. queue) or ''
if string.match(known, '^on ') then
  local since = string.match(known, '(%d+)$')
  redis.call('HSET', topic, 'q:' .. queue, 'on ' .. ARGV[5] .. ' ' .. since)
  return 1
end
local to = {KEYS[7], KEYS[8]}
-- Messages of a publish get one microsecond each, so the last ids may lie in the future; what this
-- subscription has no copy of must be older than it.
local since = string.format('%.0f', seconds * 1000000 + micros + 200000)
local function come_again()
  -- Should the caller not come, others find what this queue holds by now.
  redis.call('HSET', topic, 'q:' .. queue, 'left ' .. ARGV[5] .. ' ' .. since)
  return 0
end
if heir ~= '' then
  if not absorb({KEYS[9], KEYS[10]}, to, page) then return come_again() end
  redis.call('UNLINK', KEYS[9], KEYS[10])
  redis.call('SREM', index, heir)
  -- It has now all that the other one got, which is all there was if that was subscribed until now.
  local record = redis.call('HGET', topic, 'q:' .. heir) or ''
  since = string.match(record, '^on .* (%d+)$') or since
  put_off(heir, 'gone')
end
-- The first one has whatever was published before, too, if nobody of this consumer has left anything.
if ARGV[10] == '1' and heir == '' then since = '0' end
if ARGV[10] == '1' and not (trim() and absorb({KEYS[5], KEYS[6]}, to, page)) then
  redis.call('HSET', topic, 'first', queue .. string.format(' %.0f', now))
  return come_again()
end
redis.call('HSET', topic, 'q:' .. queue, 'on ' .. ARGV[5] .. ' ' .. since)
redis.call('HDEL', topic, 'first')
-- A new peer may allow less silence than its siblings: see topic_beat.lua.
redis.call('HDEL', heard, 'look:' .. (string.match(ARGV[5], '^each %d+ %d (%S+) ') or ''))
changed(ARGV[2])
local present = redis.call('ZCARD', KEYS[7])
if present > 0 then
  redis.pcall('PUBLISH', ARGV[14], present)
  rouse(KEYS[7])
end
return 1
