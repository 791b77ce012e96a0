-- Read messages of every state in the order of their visible-at, from a place in that order on.
-- The place is a score and an id, so what is removed or added elsewhere does not shift it.
-- KEYS: zset, hash. ARGV: count; then the rank to start at, negative from the end of the ready ones,
--   or score and id of the last message seen.
-- Returns: {now (ms), score and id to go on after (both empty at the end), then per message:
--   id, body, rc, fr, score}. A page ends early once its bodies have 1 MiB together.
-- Errors: queueNotFound, queueCorrupt. Cost: O(log(n) * log(messages of that score) + count).
local zset, hash = KEYS[1], KEYS[2]
-- @include queue
-- @include clock
local count, start = tonumber(ARGV[1]), 0
-- By bytes, as the server orders members; the comparison of Lua depends on the locale.
local function is_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end
if not ARGV[3] then
  start = tonumber(ARGV[2])
  if start < 0 then start = math.max(0, start + redis.call('ZCOUNT', zset, '-inf', now)) end
else
  -- The message itself may be gone: find the first rank behind its place among those of its score.
  start = redis.call('ZCOUNT', zset, '-inf', '(' .. ARGV[2])
  local upto = redis.call('ZCOUNT', zset, '-inf', ARGV[2])
  while start < upto do
    local middle = math.floor((start + upto) / 2)
    if is_after(redis.call('ZRANGE', zset, middle, middle)[1], ARGV[3]) then
      upto = middle
    else
      start = middle + 1
    end
  end
end
local reply, bytes, more = {now, '', ''}, 0, true
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
  for i = 1, #range / 2 do
    local body, size = values[3 * i - 2], #reply
    if body then
      bytes = bytes + #body
      reply[size + 1], reply[size + 2] = range[2 * i - 1], body
      reply[size + 3] = tonumber(values[3 * i - 1] or 0) or 0
      reply[size + 4] = tonumber(values[3 * i] or 0) or 0
      reply[size + 5] = range[2 * i]
    end
    reply[2], reply[3] = range[2 * i], range[2 * i - 1]
  end
  more = #range == 2 * wanted
  start, count = start + wanted, count - wanted
end
if not more then reply[2], reply[3] = '', '' end
return reply
