-- Read messages of a claim that are still the claimant's.
-- KEYS: zset, hash, claim, bodies that were moved.
-- ARGV: first message, message after the last, with bodies (0 or 1), lease or move, bytes of bodies, with headers (0 or 1).
-- Returns: {number received by others since, number gone (dead letters included), runs of messages, bodies, and if there are
--   any, a list of id, headers}; a message that is not the claimant's
--   any more has no body. The last message is the one with which the bodies reach the bytes, if there are that many. Without
--   bodies the last list is empty if all messages are the claimant's, else it has 1 or nothing for each.
-- Errors: claimGone.
-- Cost: O(messages + bytes), at most 7000 messages.
-- @include ledger
-- @include moved
-- @include headers
local zset, hash, claim, from, upto = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), tonumber(ARGV[2])
local wanted, most = ARGV[3] == '1', tonumber(ARGV[5])
local parts, count = parts_between(claim, from, upto)
if count ~= upto - from then return 'claimGone' end
local runs, bodies, taken, gone = {}, {}, 0, 0
local function reply(read)
  local headers = ARGV[6] == '1' and read_headers(zset, marked_ids(read)) or {}
  return {taken, gone, runs, bodies, #headers > 0 and headers or nil}
end
if ARGV[4] == 'move' then
  local maxsize, place, dead, read_parts = longest_body(hash), 0, {}, {}
  for i, part in ipairs(parts) do
    if most <= 0 then break end
    local some, read = part.count, 0
    if wanted then
      some, read = moved_bodies(KEYS[4], part, most, maxsize, bodies)
      if some == 0 then return 'claimGone' end
    end
    part = part_of(part.run, 0, 0, some)
    runs[i], read_parts[i], most = part.run, part, most - read
    local at = 1
    while at do
      -- A mark is one character of text in a list of ids, which have none of its kind.
      at = string.find(part.ids, '!', at, true)
      if at then
        gone, dead[place + (at - 1) / part.width + 1], at = gone + 1, true, at + 1
      end
    end
    place = place + some
  end
  if gone > 0 then
    for i = 1, place do
      if dead[i] then bodies[i] = false elseif not wanted then bodies[i] = 1 end
    end
  end
  return reply(read_parts)
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
return reply(parts)
