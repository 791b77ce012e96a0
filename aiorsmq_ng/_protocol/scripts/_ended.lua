-- Peers that are taken for dead.
-- Reads: heard, gone, now. Defines: still_silent(queue, sign) -> whether nothing more was heard of a peer than
--   the caller knows of (nothing: it does not matter); remember(queue) notes that a peer may come back, for a
--   day; only the last thousand of a topic are remembered.
local function still_silent(queue, sign)
  return sign == '' or redis.call('HGET', heard, queue) == sign
end
local function remember(queue)
  redis.call('ZADD', gone, string.format('%.0f', now), queue)
  redis.call('ZREMRANGEBYRANK', gone, 0, -1001)
  redis.call('PEXPIRE', gone, 86400000)
end
