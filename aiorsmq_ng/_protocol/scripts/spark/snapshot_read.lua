-- Read messages that a snapshot names. Bodies and counts are the present ones.
-- KEYS: zset, hash, page of the snapshot, its other pages.
-- ARGV: first rank, rank after the last, TTL of all pages from now on (s), with bodies (0 or 1), with counts (0 or 1),
--   bytes of bodies, with headers (0 or 1).
-- Returns: {ids and scores in turn, bodies, rc, fr, number of ranks that these cover, all but the last a list, and if there are
--   any headers, a list of id, headers}; a message
--   that is gone has no body. The last message is the one with which the bodies reach the bytes, if there are that many.
--   rc and fr are empty if no message was received yet.
-- Errors: snapshotGone.
-- Cost: O(log n + messages + bytes), at most 7000 messages.
-- @include is_id
-- @include bodies
-- @include headers
local zset, hash, page = KEYS[1], KEYS[2], KEYS[3]
if redis.call('EXPIRE', page, ARGV[3]) == 0 then return 'snapshotGone' end
for i = 4, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[3]) end
local members = redis.call('ZRANGE', page, ARGV[1], ARGV[2] - 1, 'WITHSCORES')
local ids, range, ranks, covered, bodies, counts, firsts = {}, {}, {}, #members / 2, {}, {}, {}
for i = 1, #members, 2 do
  if is_id(members[i]) then
    local size = #ids
    ids[size + 1], range[2 * size + 1], range[2 * size + 2] = members[i], members[i], members[i + 1]
    ranks[size + 1] = (i + 1) / 2
  end
end
if ARGV[4] == '1' then
  local count
  bodies, count = read_bodies(hash, ids, tonumber(ARGV[6]))
  if count < #ids then covered = ranks[count] end
  for i = #ids, count + 1, -1 do ids[i], range[2 * i], range[2 * i - 1] = nil, nil, nil end
end
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
local headers = ARGV[7] == '1' and read_headers(zset, with_headers(ids)) or {}
return {range, bodies, counts, firsts, covered, #headers > 0 and headers or nil}
