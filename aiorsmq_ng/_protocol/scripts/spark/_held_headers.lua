-- Headers of messages that a claim holds outside of their queue; see _headers.lua.
-- hold_headers(zset, ids) notes in the side key that a claim holds these messages. ids may be nil.
-- free_headers(zset, ids) notes that they are in the queue again. ids may be nil.
-- @include headers
local function rewrite_headers(zset, ids, mark)
  local found = read_headers(zset, ids)
  local size = #found
  for i = 2, size, 2 do found[i] = mark .. found[i] end
  for from = 1, size, 4000 do
    -- pcall: a message is worth more than its headers.
    redis.pcall('HSET', headers_of(zset), unpack(found, from, math.min(size, from + 3999)))
  end
end
local function hold_headers(zset, ids) rewrite_headers(zset, ids, '!') end
local function free_headers(zset, ids) rewrite_headers(zset, ids, '') end
