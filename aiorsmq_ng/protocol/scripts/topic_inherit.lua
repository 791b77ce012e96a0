-- Move messages that a peer left behind to a sibling, those that were published before the sibling
-- subscribed: it has a copy of its own of all others. One step of the whole.
-- KEYS: topic, heard, index, zset and hash of the peer that has gone, zset and hash of the sibling.
-- ARGV: version that the caller knows, random characters, queue of the peer that has gone, queue of the
--   sibling, 1 if it takes over all that is left (then the other queue is deleted at the end), rank to
--   start at, messages in one step, wake-up channel of the sibling.
-- Returns: rank to go on at, or -1 at the end. Errors: topicChanged. Cost: O(messages in a step).
local topic, heard, index, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[8]
local from, to = {KEYS[4], KEYS[5]}, {KEYS[6], KEYS[7]}
local at, page = tonumber(ARGV[6]), tonumber(ARGV[7])
-- @include clock
-- @include topic_changed
-- @include absorb
if not version_is(ARGV[1]) then return 'topicChanged' end
local record = redis.call('HGET', topic, 'q:' .. ARGV[4]) or ''
local since = tonumber(string.match(record, '^on .* (%d+)$') or 0)
local ids, wanted = redis.call('ZRANGE', from[1], at, at + page - 1), {}
redis.call('ZCARD', to[1])
for i = 1, #ids do
  -- An id that does not tell when it was sent counts as old: rather twice than never.
  local sent = string.match(ids[i], '^%w%w%w%w%w%w%w%w%w%w') and tonumber(string.sub(ids[i], 1, 10), 36)
  if (sent or 0) < since then wanted[#wanted + 1] = ids[i] end
end
carry(from, to, wanted)
if #wanted > 0 then redis.pcall('PUBLISH', channel, redis.call('ZCARD', to[1])) end
if #ids == page then return at + page - #wanted end
if ARGV[5] == '1' or redis.call('ZCARD', from[1]) == 0 then
  redis.call('UNLINK', from[1], from[2])
  redis.call('SREM', index, ARGV[3])
  redis.call('HDEL', heard, ARGV[3])
  redis.call('HDEL', topic, 'q:' .. ARGV[3])
  if ARGV[5] == '1' then
    local heir = string.gsub(record, '^(on each %d+) %d ', '%1 1 ')
    redis.call('HSET', topic, 'q:' .. ARGV[4], heir)
  end
  changed(ARGV[2])
end
return -1
