-- Give a sibling messages that a peer left behind: those that were published before it subscribed, it has a
-- copy of its own of all others. They are copied, and what was left stays for a peer that comes anew; or
-- that is who takes it over, and then nothing is left. One step of the whole.
-- KEYS: topic, heard, index, zset and hash of the peer that has gone, zset and hash of the sibling.
-- ARGV: version that the caller knows, random characters, queue of the peer that has gone, queue of the
--   sibling, 1 if it takes over all that is left (then the other queue is deleted at the end), rank to
--   start at, messages in one step, wake-up channel of the sibling.
-- Returns: rank to go on at, or -1 at the end. Errors: topicChanged. Cost: O(messages in a step).
local topic, heard, index, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[8]
local from, to = {KEYS[4], KEYS[5]}, {KEYS[6], KEYS[7]}
local whole, at, page = ARGV[5] == '1', tonumber(ARGV[6]), tonumber(ARGV[7])
-- @include clock
-- @include rouse
-- @include topic_changed
-- @include absorb
-- @include silent
if not version_is(ARGV[1]) then return 'topicChanged' end
local record = redis.call('HGET', topic, 'q:' .. ARGV[4]) or ''
local left = redis.call('HGET', topic, 'q:' .. ARGV[3]) or ''
local since = tonumber(string.match(record, '^on .* (%d+)$'))
if not since or string.match(left, '^on ') or string.match(left, '^gone ') then return 'topicChanged' end
local ids, wanted = redis.call('ZRANGE', from[1], at, at + page - 1), {}
redis.call('ZCARD', to[1])
for i = 1, #ids do
  -- An id that does not tell when it was sent counts as old: rather twice than never.
  local sent = string.match(ids[i], '^%w%w%w%w%w%w%w%w%w%w') and tonumber(string.sub(ids[i], 1, 10), 36)
  if (sent or 0) < since then wanted[#wanted + 1] = ids[i] end
end
-- See _spend.lua: a full server takes what follows.
redis.call('HDEL', heard, '')
carry(from, to, wanted, not whole)
if #wanted > 0 then
  redis.pcall('PUBLISH', channel, redis.call('ZCARD', to[1]))
  rouse(to[1])
end
if #ids == page then return at + page - (whole and #wanted or 0) end
-- From now on it has had, or has, all that the other one left.
local before = tonumber(string.match(left, ' (%d+)$') or since)
record = string.gsub(record, '%d+$', string.format('%.0f', math.min(since, before)))
if whole then record = string.gsub(record, '^(on each %d+) %d ', '%1 1 ') end
redis.call('HSET', topic, 'q:' .. ARGV[4], record)
if whole or redis.call('ZCARD', from[1]) == 0 then
  redis.call('UNLINK', from[1], from[2])
  redis.call('SREM', index, ARGV[3])
  put_off(ARGV[3], 'gone')
  changed(ARGV[2])
end
return -1
