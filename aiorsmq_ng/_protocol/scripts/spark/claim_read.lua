-- Read messages of a claim that are still the claimant's.
-- KEYS: hash, claim.
-- ARGV: first message, message after the last, with bodies (0 or 1), lease or move, bytes of bodies.
-- Returns: {number received by others since, number gone, runs of messages, bodies}; a message that is not the claimant's
--   any more has no body. The last message is the one with which the bodies reach the bytes, if there are that many. Without bodies the last list is empty if all messages are the claimant's, else it has 1 or
--   nothing for each.
-- Errors: claimGone.
-- Cost: O(messages + bytes), at most 7000 messages.
-- @include runs
local hash, claim, from, upto = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local wanted, most = ARGV[3] == '1', tonumber(ARGV[5])
if ARGV[4] == 'move' then
  if redis.call('ZCOUNT', claim, from, '(' .. upto) ~= upto - from then return 'claimGone' end
  local ids, rcs, frs, bodies = moved_messages(claim, from, upto, most, longest_body(hash))
  return {0, 0, runs_of(ids, rcs, frs, #ids), wanted and bodies or {}}
end
local ids, rcs, _, runs = messages_of(claim, from, upto)
if #ids ~= upto - from then return 'claimGone' end
if #ids == 0 then return {0, 0, {}, {}} end
local fields, bodies, taken, gone = {}, {}, 0, 0
if wanted then
  local count
  bodies, count = read_bodies(hash, ids, most)
  if count < #ids then ids, rcs, _, runs = messages_of(claim, from, from + count) end
end
for i = 1, #ids do fields[i] = ids[i] .. ':rc' end
local stored = redis.call('HMGET', hash, unpack(fields))
for i = 1, #ids do
  if not stored[i] or (wanted and not bodies[i]) then
    gone, stored[i] = gone + 1, false
  elseif stored[i] ~= rcs[i] then
    taken, stored[i] = taken + 1, false
  end
end
if taken + gone > 0 then
  for i = 1, #ids do
    if not stored[i] then bodies[i] = false elseif not wanted then bodies[i] = 1 end
  end
end
return {taken, gone, runs, bodies}
