-- Read messages that a snapshot names. Bodies and counts are those of now.
-- KEYS: hash, snapshot. ARGV: first rank, rank after the last, TTL from now on (s), with bodies (0 or 1),
--   with counts (0 or 1).
-- Returns: {ids, scores, bodies, rc, fr}, each a list; a message that is gone has no body.
-- Errors: snapshotGone. Cost: O(log n + messages), at most 7000 messages.
local hash, snapshot = KEYS[1], KEYS[2]
if redis.call('EXPIRE', snapshot, ARGV[3]) == 0 then return 'snapshotGone' end
local range = redis.call('ZRANGE', snapshot, ARGV[1], ARGV[2] - 1, 'WITHSCORES')
local ids, scores = {}, {}
for i = 1, #range, 2 do
  local at = (i + 1) / 2
  ids[at], scores[at] = range[i], range[i + 1]
end
local bodies, counts, firsts = {}, {}, {}
if #ids > 0 and ARGV[4] == '1' then bodies = redis.call('HMGET', hash, unpack(ids)) end
if #ids > 0 and ARGV[5] == '1' then
  local fields = {}
  for i = 1, #ids do fields[i] = ids[i] .. ':rc' end
  counts = redis.call('HMGET', hash, unpack(fields))
  for i = 1, #ids do fields[i] = ids[i] .. ':fr' end
  firsts = redis.call('HMGET', hash, unpack(fields))
end
return {ids, scores, bodies, counts, firsts}
