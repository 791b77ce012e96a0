-- Store which messages a queue holds, and when they become visible, in keys of the caller's own. Up to a number of messages
-- that is one atomic step and one key. Beyond it, every call makes a page, so that other clients can go on; a message
-- that is made visible earlier than before while the pages are made may be missed, and no other. None is stored twice.
-- KEYS: zset, hash, the page to make, pages made before.
-- ARGV: which (all, visible or hidden), TTL (s), messages in one step at most, then the last three values of the reply to
--   the call before ('' the first time).
-- Returns: {messages in this page, time of the first call (epoch ms), id where the page ends ('' = no more), its score, bytes
--   of the bodies in this page, as far as a few of them tell}.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages stored); for a page with hidden messages times the number of pages.
-- @include clock
-- @include read_queue
local zset, hash, page = KEYS[1], KEYS[2], KEYS[3]
local which, ttl, most, last, score = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[6]
local refused = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local function time_at(key, rank)
  return tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
end
if ARGV[4] ~= '' then now = tonumber(ARGV[4]) end
local first, total = 0, redis.call('ZCARD', zset)
local visible = redis.call('ZCOUNT', zset, '-inf', now)
if which == 'visible' then total = visible elseif which == 'hidden' then first = visible end
if last ~= '' then
  if redis.call('ZSCORE', zset, last) == score then
    first = redis.call('ZRANK', zset, last) + 1
  else
    -- It moved or is gone: read the messages of the same time once more.
    first = math.max(first, redis.call('ZCOUNT', zset, '-inf', '(' .. score))
  end
end
local upto = math.min(total, first + most)
redis.call('UNLINK', page)
if first == 0 and upto == redis.call('ZCARD', zset) then
  redis.call('COPY', zset, page)
elseif upto > first then
  redis.call('ZRANGESTORE', page, zset, first, upto - 1)
end
-- A message that moves to a later place is one that was received or hidden, so that its time is past the
-- first call, or that was given back, and that is within a few ms of where it was. So most pages have
-- at most their first messages in common with the page before.
local lowest, highest = time_at(page, 0), time_at(page, -1)
local compared = {page}
for i = 4, #KEYS do
  local top = time_at(KEYS[i], -1)
  if lowest and top and (highest >= now or top >= lowest - 10) then
    local near = highest < now and redis.call('ZCOUNT', page, '-inf', string.format('%.17g', top + 10))
    if near and near <= 1000 then
      local ids = redis.call('ZRANGE', page, 0, near - 1)
      if near == 0 then ids = {''} end
      local known = redis.call('ZMSCORE', KEYS[i], unpack(ids))
      for n = 1, #known do
        if known[n] then redis.call('ZREM', page, ids[n]) end
      end
    else
      compared[#compared + 1] = KEYS[i]
    end
  end
end
if #compared > 1 then redis.call('ZDIFFSTORE', page, #compared, unpack(compared)) end
redis.call('EXPIRE', page, ttl)
last, score = '', ''
if upto < total then
  local ending = redis.call('ZRANGE', zset, upto - 1, upto - 1, 'WITHSCORES')
  last, score = ending[1], ending[2]
end
local size, sampled, bytes = redis.call('ZCARD', page), 0, 0
for rank = 0, size - 1, math.max(1, math.ceil(size / 16)) do
  sampled, bytes = sampled + 1, bytes + redis.call('HSTRLEN', hash, redis.call('ZRANGE', page, rank, rank)[1])
end
return {size, now, last, score, math.floor(bytes * size / math.max(1, sampled))}
