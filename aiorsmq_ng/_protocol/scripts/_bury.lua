-- Put messages into a dead-letter queue, which is created if it does not exist.
-- Reads: now, seconds, rouse, _past.lua. A dead-letter queue is a table {limit, zset, hash, deliveries,
--   index, name, channel}; rows is a list to which bury adds id, body (empty after the first MiB), rc, fr
--   and why.
-- Defines: examine(dead) -> a code word if its keys are not sound (and remembers its counter);
--   bury(dead, id, body, rc, fr, maxsize, past); close(dead) writes the counter and tells who waits.
-- @include number
-- @include prune
local function examine(dead)
  redis.call('ZCARD', dead.zset)
  local stored = redis.call('HMGET', dead.hash, 'vt', 'delay', 'maxsize', 'totalsent')
  dead.missing = not (stored[1] and stored[2] and stored[3])
  dead.sent, dead.buried, dead.rows, dead.bytes = number(stored[4], 0), 0, {}, 0
  if not dead.sent or dead.sent % 1 ~= 0 then return 'queueCorrupt' end
end
local function why_buried(rc, past)
  local often = rc - past.excused
  local why = 'received ' .. (often == 1 and 'once' or string.format('%.0f times', often)) .. ' without being settled'
  if past.excused > 0 then
    why = why .. string.format(' (and %.0f times given back before anybody began)', past.excused)
  end
  if past.holder ~= '' then why = why .. '; last holder ' .. past.holder end
  if past.time then
    why = why .. string.format('; last delivery %.0f s ago', math.max(0, now - past.time) / 1000)
  end
  return why
end
local function bury(dead, id, body, rc, fr, maxsize, past)
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
  -- It stays a suspect: a consumer of dead letters gets it alone.
  local why, size = why_buried(rc, past), #dead.rows
  dead.bytes = dead.bytes + #body
  dead.rows[size + 1], dead.rows[size + 2], dead.rows[size + 3] = id, dead.bytes <= 1048576 and body or '', rc
  dead.rows[size + 4], dead.rows[size + 5] = fr, why
  past.why, past.strikes = '\n' .. why, past.strikes - 1
  keep_pasts(dead.deliveries, {id, write_past(rc, past, 'h')})
end
local function close(dead)
  if dead.buried > 0 then
    redis.call('HSET', dead.hash, 'totalsent', string.format('%.0f', dead.sent + dead.buried))
    prune(dead.zset, dead.deliveries, dead.buried)
    redis.pcall('PUBLISH', dead.channel, redis.call('ZCARD', dead.zset))
    rouse(dead.zset, now)
  end
end
