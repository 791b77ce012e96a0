-- remove_message(zset, hash, deliveries, id) removes everything that is stored of one message.
local function remove_message(zset, hash, deliveries, id)
  redis.call('ZREM', zset, id)
  redis.call('HDEL', hash, id, id .. ':rc', id .. ':fr', id .. ':meta')
  -- pcall: a side key of another type must not prevent the removal.
  redis.pcall('HDEL', deliveries, id)
end
