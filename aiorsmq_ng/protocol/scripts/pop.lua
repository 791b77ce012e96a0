-- Take messages and delete them. Each part is one caller's pop; earlier parts are served first.
-- KEYS: zset, hash, deliveries. ARGV per part: count.
-- Returns: per part {ms until the next message is visible or -1 (0 = come back at once; only for a
--   part that got nothing), then per message: id, body, rc, fr}.
-- Errors: queueNotFound, queueCorrupt. Cost: O(messages * log n).
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
-- @include queue
-- @include clock
-- @include take
local wanted = 0
for at = 1, #ARGV do wanted = wanted + tonumber(ARGV[at]) end
-- @include spend
spend()
local taken = take(wanted)

local replies, served = {}, 0
for at = 1, #ARGV do
  local count, reply = tonumber(ARGV[at]), {-1}
  while count > 0 and served < #taken do
    served, count = served + 1, count - 1
    local size, message = #reply, taken[served]
    for i = 1, 4 do reply[size + i] = message[i] end
  end
  replies[#replies + 1] = reply
end
for from = 1, #taken, 1000 do
  local ids, fields = {}, {}
  for i = from, math.min(#taken, from + 999) do
    local id = taken[i][1]
    ids[#ids + 1] = id
    fields[#fields + 1] = id
    fields[#fields + 1] = id .. ':rc'
    fields[#fields + 1] = id .. ':fr'
    fields[#fields + 1] = id .. ':meta'
  end
  redis.call('ZREM', zset, unpack(ids))
  redis.call('HDEL', hash, unpack(fields))
  redis.pcall('HDEL', deliveries, unpack(ids))
end
if #taken > 0 then
  redis.call('HSET', hash, 'totalrecv', string.format('%.0f', received + #taken))
end
if served < wanted then
  local hint = next_visible_ms()
  for i = 1, #replies do
    if #replies[i] == 1 then replies[i][1] = hint end
  end
end
return replies
