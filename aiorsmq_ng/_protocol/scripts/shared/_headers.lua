-- Headers of messages: texts (JSON objects of names and values) in the side key ng:headers, a hash of message id -> headers.
-- Ids of messages with headers end in "hd". Ids of other clients end so once in 3844 times; then there is nothing stored for
-- them. So scripts look at the side key for such ids only, and messages without headers cost no command.
-- headers_of(zset) -> the side key.
-- with_headers(ids) -> those of a list of ids that may have headers, or nil.
-- read_headers(zset, ids) -> a flat list of id, headers of those that have some. ids may be nil.
-- remove_headers(zset, ids). ids may be nil.
local function headers_of(zset) return zset .. ':ng:headers' end
local function with_headers(ids)
  local byte, found = string.byte, nil
  for i = 1, #ids do
    local id = ids[i]
    if byte(id, -1) == 100 and byte(id, -2) == 104 then
      found = found or {}
      found[#found + 1] = id
    end
  end
  return found
end
local function read_headers(zset, ids)
  local found = {}
  for from = 1, ids and #ids or 0, 1000 do
    local upto = math.min(#ids, from + 999)
    -- pcall: the side key may be of another type or out of reach: then there are no headers.
    local some = redis.pcall('HMGET', headers_of(zset), unpack(ids, from, upto))
    for i = from, some.err and 0 or upto do
      local text = some[i - from + 1]
      if text then found[#found + 1], found[#found + 2] = ids[i], text end
    end
  end
  return found
end
local function remove_headers(zset, ids)
  for from = 1, ids and #ids or 0, 1000 do
    redis.pcall('HDEL', headers_of(zset), unpack(ids, from, math.min(#ids, from + 999)))
  end
end
