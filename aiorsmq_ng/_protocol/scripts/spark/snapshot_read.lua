-- Read messages that a snapshot names. Bodies and counts are the present ones.
-- KEYS: hash, page of the snapshot, its other pages.
-- ARGV: first rank, rank after the last, TTL of all pages from now on (s), with bodies (0 or 1), with counts (0 or 1).
-- Returns: {ids and scores in turn, bodies, rc, fr}, each a list; a message that is gone has no body. The last two are
--   empty if no message was received yet.
-- Errors: snapshotGone.
-- Cost: O(log n + messages), at most 7000 messages.
-- @include message_id
local hash, page = KEYS[1], KEYS[2]
if redis.call('EXPIRE', page, ARGV[3]) == 0 then return 'snapshotGone' end
for i = 3, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[3]) end
local members = redis.call('ZRANGE', page, ARGV[1], ARGV[2] - 1, 'WITHSCORES')
local range, ids, bodies, counts, firsts = {}, {}, {}, {}, {}
for i = 1, #members, 2 do
  if is_id(members[i]) then
    local size = #ids
    ids[size + 1], range[2 * size + 1], range[2 * size + 2] = members[i], members[i], members[i + 1]
  end
end
if #ids > 0 and ARGV[4] == '1' then bodies = redis.call('HMGET', hash, unpack(ids)) end
if #ids > 0 and ARGV[5] == '1' then
  local fields, received = {}, false
  for i = 1, #ids do fields[i] = ids[i] .. ':rc' end
  counts = redis.call('HMGET', hash, unpack(fields))
  for i = 1, #ids do
    if counts[i] then
      received = true
      break
    end
  end
  if received then
    for i = 1, #ids do fields[i] = ids[i] .. ':fr' end
    firsts = redis.call('HMGET', hash, unpack(fields))
  else
    counts = {}
  end
end
return {range, bodies, counts, firsts}
