-- refused_headers(zset) -> {headersRefused, error of the server} if headers cannot be stored, else nil. A side key of another
--   type is replaced.
-- store_headers(zset, headers, delay_ms) stores a flat list of id, headers; see _headers.lua and _keep_headers.lua. delay_ms:
--   how long the messages are delayed, or nil.
-- Other clients delete messages and do not know the side key. So for one id in eight some headers are looked at, at random,
-- and those whose message is neither in the queue nor held by a claim are removed.
-- @include headers
-- @include keep_headers
-- @include prune_notes
local function refused_headers(zset)
  local key = headers_of(zset)
  local reply = redis.pcall('HLEN', key)
  if type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true) then reply = redis.pcall('DEL', key) end
  return type(reply) == 'table' and {'headersRefused', reply.err} or nil
end
local function prune_headers(zset, added)
  local claims = redis.pcall('HLEN', zset .. ':ng:moved')
  prune_notes(zset, headers_of(zset), added, claims ~= 0 and function(ids)
    local texts, left = redis.pcall('HMGET', headers_of(zset), unpack(ids)), {}
    for i = 1, texts.err and 0 or #ids do
      if texts[i] and string.byte(texts[i]) ~= 33 then left[#left + 1] = ids[i] end
    end
    return left
  end)
end
local function store_headers(zset, headers, delay_ms)
  local key, size = headers_of(zset), #headers
  if size == 0 then return end
  for from = 1, size, 4000 do
    -- pcall: a message is worth more than its headers. A send asks refused_headers first.
    redis.pcall('HSET', key, unpack(headers, from, math.min(size, from + 3999)))
  end
  keep_headers(zset, delay_ms or 0)
  local added = notes_to_prune(headers)
  if added then prune_headers(zset, added) end
end
