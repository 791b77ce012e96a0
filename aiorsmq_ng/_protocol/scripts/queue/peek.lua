-- Read ready messages without leasing them.
-- KEYS: zset, hash.
-- ARGV: start (rank among the ready messages, negative from the end), count.
-- Returns: flat list of id, body, rc, fr per message (rc and fr 0 if it was never received).
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(log n + count).
-- @include clock
-- @include queue
local zset, hash = KEYS[1], KEYS[2]
local refused = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local ready = redis.call('ZCOUNT', zset, '-inf', now)
local start, count = tonumber(ARGV[1]), tonumber(ARGV[2])
if start < 0 then
  start = start + ready
  -- Of a page that starts before the first message only the rest is returned.
  if start < 0 then count, start = count + start, 0 end
end
local stop = math.min(ready, start + count) - 1
local reply = {}
if stop < start then return reply end
local ids = redis.call('ZRANGE', zset, start, stop)
for from = 1, #ids, 1000 do
  local upto, fields = math.min(#ids, from + 999), {}
  for i = from, upto do
    fields[#fields + 1] = ids[i]
    fields[#fields + 1] = ids[i] .. ':rc'
    fields[#fields + 1] = ids[i] .. ':fr'
  end
  local values = redis.call('HMGET', hash, unpack(fields))
  for i = from, upto do
    local at = 3 * (i - from) + 1
    if values[at] then
      local size = #reply
      reply[size + 1], reply[size + 2] = ids[i], values[at]
      reply[size + 3] = tonumber(values[at + 1] or 0) or 0
      reply[size + 4] = tonumber(values[at + 2] or 0) or 0
    end
  end
end
return reply
