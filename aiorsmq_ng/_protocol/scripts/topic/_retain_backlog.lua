-- The backlog that the first subscription of a topic gets, retained for a while for consumers that subscribe a little
-- later: in two side keys with a TTL, together with the names of the consumers that have it. A backlog of more than 10000
-- messages is not retained.
-- kept: {zset, hash}, without deliveries, so messages are retained as if never received.
-- retain_backlog(own, kept, consumer, ttl) -> true. Retains what is in the topic's own queue, which consumer gets.
-- copy_retained(kept, to, consumer) copies it into a queue, unless consumer had it.
-- @include merge_queues
local function retain_backlog(own, kept, consumer, ttl)
  local oldest = redis.call('ZRANGE', own[1], 0, 0)[1]
  if ttl == 0 or not oldest or redis.call('ZCARD', own[1]) > 10000 then return true end
  -- A later step of moving a long queue finds it retained.
  if not redis.call('ZSCORE', kept[1], oldest) then
    redis.call('UNLINK', kept[1], kept[2])
    drop_headers(kept[1])
    transfer(own, kept, redis.call('ZRANGE', own[1], 0, -1), true)
    redis.call('HSET', kept[2], 'to:' .. consumer, 1)
  end
  redis.call('PEXPIRE', kept[1], ttl)
  redis.call('PEXPIRE', kept[2], ttl)
  -- pcall: a user may have no rights on the side key.
  redis.pcall('PEXPIRE', headers_of(kept[1]), ttl)
  return true
end
local function copy_retained(kept, to, consumer)
  if redis.call('EXISTS', kept[1], kept[2]) < 2 then return end
  if redis.call('HSETNX', kept[2], 'to:' .. consumer, 1) == 0 then return end
  transfer(kept, to, redis.call('ZRANGE', kept[1], 0, -1), true)
end
