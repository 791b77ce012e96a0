-- trim_backlog(topic, zset, hash, now) -> true if nothing was to be removed. Keeps the messages that wait in a topic's own
--   queue within its limits; the oldest go first. At most 1000 per call, so that other clients can go on.
-- @include remove_messages
local function trim_backlog(topic, zset, hash, now)
  local limits = redis.call('HMGET', topic, 'max_length', 'max_age_ms')
  local removed = {}
  if limits[1] then
    local over = redis.call('ZCARD', zset) - tonumber(limits[1])
    if over > 0 then removed = redis.call('ZRANGE', zset, 0, math.min(over, 1000) - 1) end
  end
  if limits[2] and #removed == 0 then
    local before = string.format('%.0f', now - tonumber(limits[2]))
    removed = redis.call('ZRANGEBYSCORE', zset, '-inf', '(' .. before, 'LIMIT', 0, 1000)
  end
  if #removed == 0 then return true end
  remove_messages(zset, hash, nil, removed)
  redis.call('HINCRBY', topic, 'trimmed', #removed)
  return false
end
