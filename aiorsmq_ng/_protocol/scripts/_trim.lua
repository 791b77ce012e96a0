-- Keep what waits in a topic's own queue within its limits, the oldest go first. At most 1000 per call, so
-- that other clients go on; the next call goes on.
-- Reads: topic, zset, hash, now. Defines: trim() -> whether nothing was to be done.
local function trim()
  local limits = redis.call('HMGET', topic, 'max_length', 'max_age_ms')
  local doomed = {}
  if limits[1] then
    local over = redis.call('ZCARD', zset) - tonumber(limits[1])
    if over > 0 then doomed = redis.call('ZRANGE', zset, 0, math.min(over, 1000) - 1) end
  end
  if limits[2] and #doomed == 0 then
    local before = string.format('%.0f', now - tonumber(limits[2]))
    doomed = redis.call('ZRANGEBYSCORE', zset, '-inf', '(' .. before, 'LIMIT', 0, 1000)
  end
  if #doomed == 0 then return true end
  local fields = {}
  for i = 1, #doomed do
    local id, at = doomed[i], 4 * i
    fields[at - 3], fields[at - 2], fields[at - 1], fields[at] = id, id .. ':rc', id .. ':fr', id .. ':meta'
  end
  redis.call('ZREM', zset, unpack(doomed))
  redis.call('HDEL', hash, unpack(fields))
  redis.call('HINCRBY', topic, 'trimmed', #doomed)
  return false
end
