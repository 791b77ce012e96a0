-- Read messages of every state, in the order in which they become visible, from a place in that order on. The place is a
-- score and an id, so messages that are removed or added elsewhere do not shift it.
-- KEYS: zset, hash.
-- ARGV: count; then the rank to start at, negative from the end of the ready ones, or score and id of the last message
--   seen.
-- Returns: {now (ms), score and id to go on after (both empty at the end), then per message: id, body, rc, fr, score; last,
--   if there are any, a list of id, headers}. A page ends early once its bodies and headers have 1 MiB together.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(log(n) * log(messages of that score) + count).
-- @include clock
-- @include read_queue
-- @include byte_order
-- @include is_id
-- @include headers
local zset, hash = KEYS[1], KEYS[2]
local refused = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local count, start = tonumber(ARGV[1]), 0
if not ARGV[3] then
  start = tonumber(ARGV[2])
  if start < 0 then start = math.max(0, start + redis.call('ZCOUNT', zset, '-inf', now)) end
else
  -- The message itself may be gone: find the first rank after its place among those of its score.
  start = redis.call('ZCOUNT', zset, '-inf', '(' .. ARGV[2])
  local upto = redis.call('ZCOUNT', zset, '-inf', ARGV[2])
  while start < upto do
    local middle = math.floor((start + upto) / 2)
    if sorts_before(ARGV[3], redis.call('ZRANGE', zset, middle, middle)[1]) then
      upto = middle
    else
      start = middle + 1
    end
  end
end
local reply, headers, bytes, more = {now, '', ''}, {}, 0, true
while more and count > 0 and bytes < 1048576 do
  local wanted = math.min(count, 100)
  local range = redis.call('ZRANGE', zset, start, start + wanted - 1, 'WITHSCORES')
  local fields = {}
  for i = 1, #range, 2 do
    fields[#fields + 1] = range[i]
    fields[#fields + 1] = range[i] .. ':rc'
    fields[#fields + 1] = range[i] .. ':fr'
  end
  local values = #fields > 0 and redis.call('HMGET', hash, unpack(fields)) or {}
  local seen = {}
  for i = 1, #range / 2 do
    local body, size = values[3 * i - 2], #reply
    if body and is_id(range[2 * i - 1]) then
      bytes = bytes + #body
      reply[size + 1], reply[size + 2], seen[#seen + 1] = range[2 * i - 1], body, range[2 * i - 1]
      reply[size + 3] = tonumber(values[3 * i - 1] or 0) or 0
      reply[size + 4] = tonumber(values[3 * i] or 0) or 0
      reply[size + 5] = range[2 * i]
    end
    reply[2], reply[3] = range[2 * i], range[2 * i - 1]
  end
  local some = read_headers(zset, with_headers(seen))
  for i = 1, #some do
    headers[#headers + 1], bytes = some[i], bytes + #some[i]
  end
  more = #range == 2 * wanted
  start, count = start + wanted, count - wanted
end
if not more then reply[2], reply[3] = '', '' end
if #headers > 0 then reply[#reply + 1] = headers end
return reply
