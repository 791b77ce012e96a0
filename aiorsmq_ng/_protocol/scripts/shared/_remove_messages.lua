-- The removal of all that is stored under an id. A member that is no id is removed from the sorted set only.
-- remove_messages(zset, hash, deliveries, ids) removes everything that is stored of up to 1000 messages. deliveries may be
--   nil.
-- @include is_id
-- @include headers
local function remove_messages(zset, hash, deliveries, ids)
  local fields, n = {}, 0
  for i = 1, #ids do
    local id = ids[i]
    if is_id(id) then
      fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = id, id .. ':rc', id .. ':fr', id .. ':meta'
      n = n + 4
    end
  end
  if #ids > 0 then redis.call('ZREM', zset, unpack(ids)) end
  if n > 0 then redis.call('HDEL', hash, unpack(fields)) end
  -- pcall: a side key of another type must not prevent the removal.
  if n > 0 and deliveries then redis.pcall('HDEL', deliveries, unpack(ids)) end
  if n > 0 then remove_headers(zset, with_headers(ids)) end
end
