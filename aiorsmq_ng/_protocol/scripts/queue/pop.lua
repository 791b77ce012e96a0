-- Take messages and delete them. Each part is one caller's pop; earlier parts are served first.
-- KEYS: zset, hash, deliveries.
-- ARGV: per part: count.
-- Returns: per part {ms until the next message is visible or -1 (0 = come back at once; only for a part that got nothing),
--   then per message: id, body, rc, fr; last, if there are any, a list of id, headers}.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include read_queue
-- @include take_ready
-- @include allow_writes_when_full
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
local refused, _, _, _, _, received = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local wanted = 0
for at = 1, #ARGV do wanted = wanted + tonumber(ARGV[at]) end
allow_writes_when_full(hash)
local taken, size = take_ready(zset, hash, now, wanted)

local replies, served = {}, 0
for part = 1, #ARGV do
  local count, reply = math.min(tonumber(ARGV[part]), (size - served) / 4), {-1}
  local ids = {}
  for i = 1, 4 * count do reply[i + 1] = taken[served + i] end
  for i = 1, count do ids[i] = taken[served + 4 * i - 3] end
  local some = with_headers(ids)
  local headers = some and read_headers(zset, some) or {}
  if #headers > 0 then reply[#reply + 1] = headers end
  served = served + 4 * count
  replies[part] = reply
end
for from = 1, size, 4000 do
  local ids, again, fields, n = {}, {}, {}, 0
  for at = from, math.min(size, from + 3999), 4 do
    local id = taken[at]
    ids[n / 4 + 1] = id
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = id, id .. ':rc', id .. ':fr', id .. ':meta'
    n = n + 4
    -- A first delivery has a note only if it was returned, and few are popped after that.
    if taken[at + 2] > 1 then again[#again + 1] = id end
  end
  redis.call('ZREM', zset, unpack(ids))
  redis.call('HDEL', hash, unpack(fields, 1, n))
  if #again > 0 then redis.pcall('HDEL', deliveries, unpack(again)) end
  remove_headers(zset, with_headers(ids))
end
if size > 0 then
  redis.call('HSET', hash, 'totalrecv', string.format('%.0f', received + size / 4))
end
if served < 4 * wanted then
  local hint = next_visible_ms(zset, now)
  for i = 1, #replies do
    if #replies[i] == 1 then replies[i][1] = hint end
  end
end
return replies
