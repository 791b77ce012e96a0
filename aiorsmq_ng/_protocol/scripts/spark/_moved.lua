-- Messages that were moved out of their queue: their bodies are in a list beside the claim, under their numbers in it.
-- moved_bodies(list, part, most, maxsize, bodies) adds the bodies of a part to a list of bodies, up to the message with
--   which they have most bytes -> number of bodies, their bytes.
-- count_moved(zset, claim, count) adds to the number of messages that a claim holds. The side key ng:moved has this number for
--   every claim that holds some.
-- @include bodies
local function moved_bodies(list, part, most, maxsize, bodies)
  local size, count, bytes = #bodies, 0, 0
  while count < part.count and bytes < most do
    local upto = part.count
    if tonumber(part.fourth) > most then upto = math.min(upto, count + at_once(most - bytes, maxsize)) end
    local some = redis.call('LRANGE', list, part.from + count, part.from + upto - 1)
    if #some < upto - count then return 0, 0 end
    for i = 1, #some do
      if bytes >= most then break end
      count = count + 1
      bodies[size + count] = some[i]
      bytes = bytes + #some[i]
    end
  end
  return count, bytes
end
local function count_moved(zset, claim, count)
  local key = zset .. ':ng:moved'
  if redis.call('HINCRBY', key, claim, count) <= 0 then redis.call('HDEL', key, claim) end
end
