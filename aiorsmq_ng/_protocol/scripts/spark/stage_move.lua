-- Turn staged rows into messages, in order.
-- KEYS: zset, hash, staged.
-- ARGV: wake-up channel, how many rows at most, how many bytes of bodies.
-- Returns: rows left.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(rows * log n + bytes), at most 2000 rows; it ends with the row that reaches the bytes.
-- @include clock
-- @include read_queue
-- @include bodies
-- @include store_rows
local zset, hash, staged = KEYS[1], KEYS[2], KEYS[3]
local refused, _, delay_ms, maxsize, sent = read_queue(zset, hash)
if refused then return refused end
local now, seconds, micros = server_time()
local rows, upto, left = {}, 3 * tonumber(ARGV[2]), tonumber(ARGV[3])
while #rows < upto and left > 0 do
  local some = redis.call('LPOP', staged, math.min(upto - #rows, 3 * at_once(left, maxsize)))
  if not some then break end
  for i = 1, #some, 3 do
    rows[#rows + 1], rows[#rows + 2], rows[#rows + 3] = some[i], some[i + 1], some[i + 2]
    left = left - #some[i + 2]
  end
end
if #rows == 0 then return 0 end
store_rows({zset = zset, hash = hash, channel = ARGV[1], now = now, micros = micros, us = seconds * 1000000 + micros,
  delay_ms = delay_ms, sent = sent}, rows, 1, #rows)
return redis.call('LLEN', staged) / 3
