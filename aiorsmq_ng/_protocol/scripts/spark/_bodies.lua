-- Bodies in bounded amounts: a call ends with the message that reaches its number of bytes, so that it holds the server
-- for a short time, however long the bodies are.
-- longest_body(hash) -> the queue's maxsize (bytes); -1 if it has none.
-- at_once(left, maxsize) -> how many bodies to ask for in one command while left bytes are missing. One at a time where
--   the queue's maxsize allows more than that in a single body.
-- read_bodies(hash, ids, most) -> bodies (false where there is none), number of ids that they belong to, bytes.
-- count_bytes(hash, ids, most) -> the same without bodies: number of ids, bytes.
local function longest_body(hash) return tonumber(redis.call('HGET', hash, 'maxsize') or -1) or -1 end
local function at_once(left, maxsize)
  if maxsize <= 0 then return 1 end
  return math.max(1, math.min(16, math.floor(left / maxsize)))
end
local function read_bodies(hash, ids, most)
  local bodies, count, bytes, maxsize = {}, 0, 0, longest_body(hash)
  while count < #ids and bytes < most do
    local upto = math.min(#ids, count + at_once(most - bytes, maxsize))
    local some = redis.call('HMGET', hash, unpack(ids, count + 1, upto))
    for i = 1, #some do
      bodies[count + i] = some[i]
      if some[i] then bytes = bytes + #some[i] end
    end
    count = upto
  end
  return bodies, count, bytes
end
local function count_bytes(hash, ids, most)
  local count, bytes = 0, 0
  while count < #ids and bytes < most do
    count = count + 1
    bytes = bytes + redis.call('HSTRLEN', hash, ids[count])
  end
  return count, bytes
end
