-- refused_headers(zset) -> {headersRefused, error of the server} if headers cannot be stored, else nil. A side key of another
--   type is replaced.
-- store_headers(zset, headers, delay_ms) stores a flat list of id, headers; see _headers.lua. delay_ms: how long the messages
--   are delayed, or nil. The TTL is 14 days after the last message with headers came, and longer for a longer delay.
-- Other clients delete messages and do not know the side key. So for one id in eight some headers are looked at, at random,
-- and those whose message does not exist are removed. While a claim holds messages outside of the queue this is left out,
-- because they may come back.
-- @include prune_notes
local function refused_headers(zset)
  local key = zset .. ':ng:headers'
  local reply = redis.pcall('HLEN', key)
  if type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true) then reply = redis.pcall('DEL', key) end
  return type(reply) == 'table' and {'headersRefused', reply.err} or nil
end
local function store_headers(zset, headers, delay_ms)
  local key, size, added = zset .. ':ng:headers', #headers, #headers / 2
  if size == 0 then return end
  for from = 1, size, 4000 do
    -- pcall: a message is worth more than its headers. A send asks refused_headers first.
    redis.pcall('HSET', key, unpack(headers, from, math.min(size, from + 3999)))
  end
  local least, left = 1209600 + math.ceil((delay_ms or 0) / 1000), redis.pcall('TTL', key)
  -- Extended by one day more, so that most calls need not write it.
  if type(left) == 'number' and left < least then
    redis.pcall('EXPIRE', key, least + 86400)
  end
  for i = 1, added < 8 and size or 0, 2 do
    if (string.byte(headers[i], -3) or 0) % 8 == 0 then added = added + 8 end
  end
  if added >= 8 and redis.pcall('HLEN', zset .. ':ng:moved') == 0 then prune_notes(zset, key, added) end
end
