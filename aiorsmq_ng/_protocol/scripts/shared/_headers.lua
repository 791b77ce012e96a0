-- Headers of messages: texts (JSON objects of names and values) in the side key ng:headers, a hash of message id -> headers.
-- Ids of messages with headers end in "hd". Ids of other clients end so once in 3844 times; then there is nothing stored for
-- them. So scripts look at the side key for such ids only, and messages without headers cost no command.
-- Headers of messages that a claim holds outside of their queue begin with an exclamation mark in the side key, so that they
-- are not taken for what is left over.
-- HEADERS_MARK: how these ids end; message_ids.py has it, too.
-- headers_of(zset) -> the side key.
-- with_headers(ids, first, last, step) -> those of a list of ids that may have headers, or nil. With the other arguments the
--   ids are the values at first, first + step and so on, up to last.
-- read_headers(zset, ids) -> a flat list of id, headers of those that have some. ids may be nil.
-- remove_headers(zset, ids). ids may be nil.
-- drop_headers(zset) removes those of all messages.
-- rename_headers(from, to) makes those of one queue those of another, which loses its own.
local HEADERS_MARK = 'hd'
local function headers_of(zset) return zset .. ':ng:headers' end
local function with_headers(ids, first, last, step)
  local sub, found = string.sub, nil
  for i = first or 1, last or #ids, step or 1 do
    local id = ids[i]
    if sub(id, -2) == HEADERS_MARK then
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
      if text and string.byte(text) == 33 then text = string.sub(text, 2) end
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
-- pcall: a user may have rights on the other keys only.
local function drop_headers(zset) redis.pcall('UNLINK', headers_of(zset)) end
local function rename_headers(from, to)
  drop_headers(to)
  if redis.pcall('EXISTS', headers_of(from)) == 1 then redis.pcall('RENAME', headers_of(from), headers_of(to)) end
end
