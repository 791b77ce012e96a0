-- Lean leases: leases of messages that were never received, by readers that take many at once. RSMQ's lease writes rc and
-- fr of every message; a lean lease writes the score only, and its holder lists the ids.
--
-- Theory of operation. A lease is one of up to 1000 messages, which all have the same score: its end plus half a millisecond.
-- Rule 1. No other client makes such a score, because RSMQ's times are whole milliseconds; and the script that makes one
--   chooses a score that no message of the queue and no other lease has. So a message with that score is one of the lease, and it was not
--   received, deleted and stored again, or made visible since: each of these removes it or gives it another score.
-- Rule 2. If as many messages have the score as the lease has, the holder still holds all of them.
-- Rule 3. A ready message with such a score is one whose lease expired. The next claim counts it as received once; other
--   clients cannot know, and count from 0.
-- The side key ng:leases is the sorted set of the scores of all lean leases, also of those that lost all messages.
--
-- leases_of(zset) -> the side key.
-- is_lean(score) -> true if a score (text) is that of a lean lease.
-- reserve_score(zset, ends) -> a score (text) for a lease that ends at this time (epoch ms) or a little later, entered in the
--   side key.
-- is_untouched(zset, hash) -> true if the hash has nothing but attributes and one body per id: then no message was received.
--   Ids without a body can hide fields of others from it; such fields remain, and the doctor removes them.
-- prune_leases(zset, until_ms) removes scores up to this time that no message has.
-- count_lean(zset, now) -> how many messages are under lean leases, as far as 1000 leases tell.
-- @include queue_fields
local function leases_of(zset) return zset .. ':ng:leases' end
local function is_lean(score) return string.sub(score, -2) == '.5' end
local function reserve_score(zset, ends)
  while true do
    local score = string.format('%.1f', math.floor(ends) + 0.5)
    if redis.call('ZCOUNT', zset, score, score) == 0 and redis.call('ZADD', leases_of(zset), 'NX', score, score) == 1 then
      return score
    end
    ends = ends + 1
  end
end
local function is_untouched(zset, hash)
  local own, attributes = redis.call('HMGET', hash, unpack(QUEUE_FIELDS)), 0
  for i = 1, #QUEUE_FIELDS do
    if own[i] then attributes = attributes + 1 end
  end
  return redis.call('HLEN', hash) == attributes + redis.call('ZCARD', zset)
end
local function prune_leases(zset, until_ms)
  local scores = redis.call('ZRANGEBYSCORE', leases_of(zset), '-inf', until_ms, 'LIMIT', 0, 100)
  for i = 1, #scores do
    if redis.call('ZCOUNT', zset, scores[i], scores[i]) == 0 then redis.call('ZREM', leases_of(zset), scores[i]) end
  end
end
local function count_lean(zset, now)
  -- pcall: a side key of another type must not fail the script.
  local scores, count = redis.pcall('ZRANGE', leases_of(zset), -1000, -1), 0
  for i = 1, scores.err and 0 or #scores do
    if tonumber(scores[i]) > now then count = count + redis.call('ZCOUNT', zset, scores[i], scores[i]) end
  end
  return count
end
