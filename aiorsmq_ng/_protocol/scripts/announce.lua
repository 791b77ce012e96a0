-- Say that a consumer is alive, or that it has gone.
-- KEYS: consumers, hash. ARGV: name, what it tells of itself ('' = gone), TTL of the whole key (s).
-- Returns: 1, or 0 if there is no such queue. Cost: O(1).
-- With 1000 names all are forgotten: living consumers are heard of again within 10 s.
-- @include clock
if redis.call('HEXISTS', KEYS[2], 'vt') == 0 then return 0 end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  if redis.call('HLEN', KEYS[1]) >= 1000 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    redis.call('DEL', KEYS[1])
  end
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now, ARGV[2]))
  redis.call('EXPIRE', KEYS[1], ARGV[3])
end
return 1
