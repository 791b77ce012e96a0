-- The ids of messages, and the removal of all that is stored under an id.
-- A sorted set may hold members that are no ids, because other programs can write to it. Such a member may equal an
-- attribute of the queue (vt) or a field of another message (<id>:rc). So no script returns it as a message or writes a
-- field of the hash by it. A script that takes or removes messages removes it from the sorted set, and leaves the hash
-- as it is.
-- is_id(text) -> true if it can be the id of a message: 20 to 64 letters, digits and colons that do not end as the fields
--   of a message do. RSMQ's ids have 32 characters, those of old Rust clients 28 to 31; attributes have fewer than 20.
--   limits.check_id is the same rule.
-- ready_ids(zset, until_ms, wanted) -> up to wanted ids of messages that are visible at that time, and true if there may be
--   more. Members that are no ids are removed, at most about 1000 so that other clients can go on.
-- remove_messages(zset, hash, deliveries, ids) removes everything that is stored of up to 1000 messages. deliveries may be
--   nil.
local FIELD_TAILS = {rc = true, fr = true, meta = true}
local function is_id(text)
  if #text < 20 or #text > 64 then return false end
  -- Twice as fast as a search for any other character; this is asked twice for every message.
  if string.match(text, '^%w*()') > #text then return true end
  return not string.find(text, '[^%w:]') and not FIELD_TAILS[string.match(text, ':(%a*)$')]
end
local function ready_ids(zset, until_ms, wanted)
  local dropped = 0
  while true do
    local members, ids = redis.call('ZRANGEBYSCORE', zset, '-inf', until_ms, 'LIMIT', 0, wanted), {}
    for i = 1, #members do
      if is_id(members[i]) then
        ids[#ids + 1] = members[i]
      else
        redis.call('ZREM', zset, members[i])
        dropped = dropped + 1
      end
    end
    if #ids == #members or #members < wanted or dropped >= 1000 then
      return ids, wanted > 0 and #members == wanted
    end
  end
end
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
end
