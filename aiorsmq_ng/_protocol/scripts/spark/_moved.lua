-- Messages that were moved out of their queue: their bodies are beside the claim, under their numbers in it. Short ones are in
-- a list, which the server packs. To find an element of a list it walks over all nodes before it, and a long body is a
-- node of its own; so long ones are in a hash, and empty texts take their places in the list. The fourth value of a run
-- says which: a plus sign begins it if the bodies are long.
-- long_bodies(list) -> the hash beside a list.
-- are_long(bytes, count) -> true if that number of bodies, with these bytes together, belongs in the hash.
-- store_bodies(list, bodies, count, first, long) stores bodies of consecutive numbers.
-- moved_bodies(list, part, most, maxsize, bodies) adds the bodies of a part to a list of bodies, up to the message with
--   which they have most bytes -> number of bodies, their bytes; 0 if one is missing.
-- count_moved(zset, claim, count) adds to the number of messages that a claim holds. The side key ng:moved has this number for
--   every claim that holds some.
-- @include bodies
local function long_bodies(list) return list .. ':long' end
local function are_long(bytes, count) return bytes > 1024 * count end
local function store_bodies(list, bodies, count, first, long)
  if long then
    local fields, empty = {}, {}
    for i = 1, count do
      fields[2 * i - 1], fields[2 * i], empty[i] = first + i - 1, bodies[i], ''
    end
    redis.call('HSET', long_bodies(list), unpack(fields, 1, 2 * count))
    bodies = empty
  end
  redis.call('RPUSH', list, unpack(bodies, 1, count))
end
local function stored_bodies(list, part, from, upto)
  if string.byte(part.fourth) ~= 43 then return redis.call('LRANGE', list, from, upto) end
  local numbers = {}
  for number = from, upto do numbers[#numbers + 1] = number end
  local found = redis.call('HMGET', long_bodies(list), unpack(numbers))
  for i = 1, #found do
    if not found[i] then return {} end
  end
  return found
end
local function moved_bodies(list, part, most, maxsize, bodies)
  local size, count, bytes = #bodies, 0, 0
  while count < part.count and bytes < most do
    local upto = part.count
    if tonumber(part.fourth) > most then upto = math.min(upto, count + at_once(most - bytes, maxsize)) end
    local some = stored_bodies(list, part, part.from + count, part.from + upto - 1)
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
