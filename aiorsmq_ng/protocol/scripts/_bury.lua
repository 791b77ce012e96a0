-- Put messages into a dead-letter queue, which is created if it does not exist.
-- Reads: now, seconds, rouse. A dead-letter queue is a table {limit, zset, hash, index, name, channel}.
-- Defines: examine(dead) -> a code word if its keys are not sound (and remembers its counter);
--   bury(dead, id, body, rc, fr, maxsize); close(dead) writes the counter and tells who waits.
-- @include number
local function examine(dead)
  redis.call('ZCARD', dead.zset)
  local stored = redis.call('HMGET', dead.hash, 'vt', 'delay', 'maxsize', 'totalsent')
  dead.missing = not (stored[1] and stored[2] and stored[3])
  dead.sent, dead.buried = number(stored[4], 0), 0
  if not dead.sent or dead.sent % 1 ~= 0 then return 'queueCorrupt' end
end
local function bury(dead, id, body, rc, fr, maxsize)
  if dead.missing then
    redis.call('SADD', dead.index, dead.name)
    redis.call('HSETNX', dead.hash, 'vt', 30)
    redis.call('HSETNX', dead.hash, 'delay', 0)
    redis.call('HSETNX', dead.hash, 'maxsize', maxsize)
    redis.call('HSETNX', dead.hash, 'created', seconds)
    redis.call('HSETNX', dead.hash, 'modified', seconds)
    dead.missing = false
  end
  redis.call('ZADD', dead.zset, string.format('%.0f', now), id)
  redis.call('HSET', dead.hash, id, body, id .. ':rc', rc, id .. ':fr', string.format('%.0f', fr))
  dead.buried = dead.buried + 1
end
local function close(dead)
  if dead.buried > 0 then
    redis.call('HSET', dead.hash, 'totalsent', string.format('%.0f', dead.sent + dead.buried))
    redis.pcall('PUBLISH', dead.channel, redis.call('ZCARD', dead.zset))
    rouse(dead.zset, now)
  end
end
