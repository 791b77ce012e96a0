-- The ids of ready messages, for scripts that take them all at once.
-- ready_ids(zset, until_ms, wanted) -> up to wanted ids of messages that are visible at that time, and true if there may be
--   more. Members that are no ids are removed, at most about 1000 so that other clients can go on.
-- @include is_id
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
