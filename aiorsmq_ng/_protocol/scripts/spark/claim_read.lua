-- Read messages of a claim that are still the claimant's.
-- KEYS: zset, hash, claim, bodies that were moved.
-- ARGV: first message, message after the last, with bodies (0 or 1), lease or move, bytes of bodies.
-- Returns: {number received by others since, number gone, runs of messages, bodies}; a message that is not the claimant's
--   any more has no body. The last message is the one with which the bodies reach the bytes, if there are that many. Without
--   bodies the last list is empty if all messages are the claimant's, else it has 1 or nothing for each.
-- Errors: claimGone.
-- Cost: O(messages + bytes), at most 7000 messages.
-- @include ledger
-- @include moved
local zset, hash, claim, from, upto = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), tonumber(ARGV[2])
local wanted, most = ARGV[3] == '1', tonumber(ARGV[5])
local parts, count = parts_between(claim, from, upto)
if count ~= upto - from then return 'claimGone' end
local runs, bodies, taken, gone = {}, {}, 0, 0
if ARGV[4] == 'move' then
  local maxsize = longest_body(hash)
  for i, part in ipairs(parts) do
    if most <= 0 then break end
    local some, read = part.count, 0
    if wanted then
      some, read = moved_bodies(KEYS[4], part, most, maxsize, bodies)
      if some == 0 then return 'claimGone' end
    end
    runs[i], most = part_of(part.run, 0, 0, some).run, most - read
  end
  return {0, 0, runs, bodies}
end
local ids, state = examine_held(zset, hash, parts)
if wanted then
  bodies, count = read_bodies(hash, ids, most)
  if count < #ids then parts = parts_between(claim, from, from + count) end
end
for i, part in ipairs(parts) do runs[i] = part.run end
for i = 1, count do
  if state[i] == 'taken' then
    taken = taken + 1
  elseif state[i] == 'gone' or (wanted and not bodies[i]) then
    gone, state[i] = gone + 1, 'gone'
  end
end
if taken + gone > 0 then
  for i = 1, count do
    if state[i] ~= true then bodies[i] = false elseif not wanted then bodies[i] = 1 end
  end
end
return {taken, gone, runs, bodies}
