-- What the first subscription of a topic gets, kept for a while for consumers that subscribe a little later:
-- in two side keys with a TTL, beside those that have it already. Of more than 10000 messages none are kept.
-- Reads: carry. Defines: keep(own, kept, consumer, ttl) keeps what is in the own queue, which consumer gets ->
--   true; hand(kept, to, consumer) copies what is kept into a queue, unless consumer had it.
local function keep(own, kept, consumer, ttl)
  local oldest = redis.call('ZRANGE', own[1], 0, 0)[1]
  if ttl == 0 or not oldest or redis.call('ZCARD', own[1]) > 10000 then return true end
  -- Not so if this is a later step of moving a long queue.
  if not redis.call('ZSCORE', kept[1], oldest) then
    redis.call('UNLINK', kept[1], kept[2])
    carry(own, kept, redis.call('ZRANGE', own[1], 0, -1), true)
    redis.call('HSET', kept[2], 'to:' .. consumer, 1)
  end
  redis.call('PEXPIRE', kept[1], ttl)
  redis.call('PEXPIRE', kept[2], ttl)
  return true
end
local function hand(kept, to, consumer)
  if redis.call('EXISTS', kept[1], kept[2]) < 2 then return end
  if redis.call('HSETNX', kept[2], 'to:' .. consumer, 1) == 0 then return end
  carry(kept, to, redis.call('ZRANGE', kept[1], 0, -1), true)
end
