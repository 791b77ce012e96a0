-- Delete messages, fenced by their receipts or not. Each part is one caller's delete. A queue that does not exist
-- has no messages: all are gone.
-- KEYS: zset, hash, deliveries.
-- ARGV: per part: n, then n times: id, rc, fr (rc '' = no fence).
-- Returns: per part n numbers: 1 deleted, 0 gone, -1 received by another caller since.
-- Errors: none.
-- Cost: O(messages * log n).
-- @include check_receipt
-- @include headers
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
local places, counts, n, at, last = {}, {}, 0, 1, #ARGV
while at <= last do
  local count = tonumber(ARGV[at])
  counts[#counts + 1] = count
  for place = at + 1, at + 3 * count, 3 do
    n = n + 1
    places[n] = place
  end
  at = at + 1 + 3 * count
end
local held, names = check_receipts(zset, hash, ARGV, places)
local replies, ids, fields, again, deleted, size = {}, {}, {}, {}, {}, 0
n = 0
for part = 1, #counts do
  local reply = {}
  for i = 1, counts[part] do
    n = n + 1
    local id = ARGV[places[n]]
    if held[n] == 'stale' then
      reply[i] = -1
    else
      -- A body whose id is not in the sorted set is an orphan: it is removed, too.
      local gone = held[n] == 'gone'
      reply[i] = (gone or deleted[id]) and 0 or 1
      if not (deleted[id] or gone and not is_id(id)) then
        deleted[id] = true
        size = size + 1
        ids[size] = id
        local first = 4 * size - 3
        fields[first], fields[first + 1], fields[first + 2] = id, names[2 * n - 1], names[2 * n]
        fields[first + 3] = id .. ':meta'
        -- A first delivery has a note only if it was returned, and few are settled after that.
        if ARGV[places[n] + 1] ~= '1' then again[#again + 1] = id end
      end
    end
  end
  replies[part] = reply
end
for from = 1, size, 1000 do
  local upto = math.min(size, from + 999)
  redis.call('ZREM', zset, unpack(ids, from, upto))
  redis.call('HDEL', hash, unpack(fields, 4 * from - 3, 4 * upto))
end
for from = 1, #again, 1000 do
  redis.pcall('HDEL', deliveries, unpack(again, from, math.min(#again, from + 999)))
end
remove_headers(zset, with_headers(ids))
return replies
