-- Note which messages a queue holds, and when they become visible, in a key of the caller's own.
-- Up to a number of messages that is one atomic step. Beyond it, every call adds a page, so that other
-- clients go on; a message that is made visible earlier than before while the pages are made
-- may be missed, and no other.
-- KEYS: zset, hash, snapshot. ARGV: which (all, visible or hidden), TTL (s), messages in one step at
--   most, then the last three values of the reply to the call before ('' the first time).
-- Returns: {number noted so far, time of the first call (ms), last id noted ('' at the end), its score}.
-- Errors: queueNotFound, queueCorrupt. Cost: O(messages noted).
local zset, hash, snapshot = KEYS[1], KEYS[2], KEYS[3]
local which, ttl, most, last, score = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[6]
-- @include queue
-- @include clock
if ARGV[4] ~= '' then now = tonumber(ARGV[4]) end
local first, total = 0, redis.call('ZCARD', zset)
local visible = redis.call('ZCOUNT', zset, '-inf', now)
if which == 'visible' then total = visible elseif which == 'hidden' then first = visible end
if last ~= '' then
  if redis.call('ZSCORE', zset, last) == score then
    first = redis.call('ZRANK', zset, last) + 1
  else
    -- It moved or is gone: look once more at the messages of the same time.
    first = math.max(first, redis.call('ZCOUNT', zset, '-inf', '(' .. score))
  end
end
local upto = math.min(total, first + most)
if last == '' and first == 0 and upto == total and which == 'all' then
  redis.call('COPY', zset, snapshot)
elseif last == '' and upto == total then
  redis.call('ZRANGESTORE', snapshot, zset, first, upto - 1)
elseif upto > first then
  for from = first, upto - 1, 2000 do
    local page = redis.call('ZRANGE', zset, from, math.min(upto, from + 2000) - 1, 'WITHSCORES')
    local entries = {}
    for i = 1, #page, 2 do entries[i], entries[i + 1] = page[i + 1], page[i] end
    redis.call('ZADD', snapshot, unpack(entries))
    last, score = page[#page - 1], page[#page]
  end
end
redis.call('EXPIRE', snapshot, ttl)
if upto >= total then last, score = '', '' end
return {redis.call('ZCARD', snapshot), now, last, score}
