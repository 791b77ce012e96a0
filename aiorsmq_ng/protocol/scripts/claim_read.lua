-- Read messages of a claim that are still the claimant's.
-- KEYS: hash, claim. ARGV: first message, message after the last, with bodies (0 or 1), lease or move.
-- Returns: {number received by others since, number gone, ids, rc, fr, bodies}, the last four lists.
-- Errors: claimGone. Cost: O(messages), at most 7000 messages.
local hash, claim, from, upto = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local width = ARGV[4] == 'move' and 4 or 3
local rows = redis.call('LRANGE', claim, width * from, width * upto - 1)
if #rows ~= width * (upto - from) then return 'claimGone' end
local ids, counts, firsts, bodies, fields = {}, {}, {}, {}, {}
for i = 1, upto - from do
  local at = width * (i - 1)
  ids[i], counts[i], firsts[i] = rows[at + 1], rows[at + 2], rows[at + 3]
  if width == 4 then bodies[i] = rows[at + 4] else fields[i] = rows[at + 1] .. ':rc' end
end
if width == 4 or #ids == 0 then return {0, 0, ids, counts, firsts, bodies} end
local stored = redis.call('HMGET', hash, unpack(fields))
local wanted = ARGV[3] == '1'
if wanted then bodies = redis.call('HMGET', hash, unpack(ids)) end
local taken, gone, kept = 0, 0, 0
for i = 1, #ids do
  if not stored[i] or (wanted and not bodies[i]) then
    gone = gone + 1
  elseif stored[i] ~= counts[i] then
    taken = taken + 1
  else
    kept = kept + 1
    ids[kept], counts[kept], firsts[kept], bodies[kept] = ids[i], counts[i], firsts[i], bodies[i]
  end
end
for i = #fields, kept + 1, -1 do
  ids[i], counts[i], firsts[i], bodies[i] = nil, nil, nil, nil
end
return {taken, gone, ids, counts, firsts, bodies}
