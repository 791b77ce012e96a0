-- Read messages of a claim that are still the claimant's.
-- KEYS: hash, claim.
-- ARGV: first message, message after the last, with bodies (0 or 1), lease or move.
-- Returns: {number received by others since, number gone, runs of messages, bodies}; a message that is not the claimant's
--   any more has no body. Without bodies the last list is empty if all messages are the claimant's, else it has 1 or
--   nothing for each.
-- Errors: claimGone.
-- Cost: O(messages), at most 7000 messages.
-- @include runs
local hash, claim, from, upto = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local moving, wanted = ARGV[4] == 'move', ARGV[3] == '1'
local ids, rcs, frs, others = messages_of(claim, from, upto, moving)
if #ids ~= upto - from then return 'claimGone' end
if moving then
  local runs = runs_of(ids, rcs, frs, #ids)
  return {0, 0, runs, wanted and others or {}}
end
if #ids == 0 then return {0, 0, {}, {}} end
local fields, bodies, taken, gone = {}, {}, 0, 0
for i = 1, #ids do fields[i] = ids[i] .. ':rc' end
local stored = redis.call('HMGET', hash, unpack(fields))
if wanted then bodies = redis.call('HMGET', hash, unpack(ids)) end
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
return {taken, gone, others, bodies}
