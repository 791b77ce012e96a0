-- Read ready messages without leasing them.
-- KEYS: zset, hash.
-- ARGV: start (rank among the ready messages, negative from the end), count.
-- Returns: flat list of id, body, rc, fr per message (rc and fr 0 if it was never received); last, if there are any, a
--   list of id, headers.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(log n + count).
-- @include clock
-- @include read_queue
-- @include is_id
-- @include headers
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
local reply, passed, seen = {}, 0, {}
-- An id without a body and a member that is no id take no place in the reply. After 1000 of them it ends early.
while start < ready and count > 0 and passed < 1000 do
  local ids = redis.call('ZRANGE', zset, start, math.min(ready, start + math.min(count, 1000)) - 1)
  local fields = {}
  for i = 1, #ids do
    fields[#fields + 1] = ids[i]
    fields[#fields + 1] = ids[i] .. ':rc'
    fields[#fields + 1] = ids[i] .. ':fr'
  end
  local values = redis.call('HMGET', hash, unpack(fields))
  for i = 1, #ids do
    local at = 3 * i - 2
    if values[at] and is_id(ids[i]) then
      local size = #reply
      reply[size + 1], reply[size + 2], seen[#seen + 1] = ids[i], values[at], ids[i]
      reply[size + 3] = tonumber(values[at + 1] or 0) or 0
      reply[size + 4] = tonumber(values[at + 2] or 0) or 0
      count = count - 1
    else
      passed = passed + 1
    end
  end
  start = start + #ids
end
local headers = read_headers(zset, with_headers(seen))
if #headers > 0 then reply[#reply + 1] = headers end
return reply
