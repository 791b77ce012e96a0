-- Turn staged rows into messages, in order.
-- KEYS: zset, hash, staged.
-- ARGV: wake-up channel, how many rows at most.
-- Returns: rows left.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(rows * log n), at most 2000 rows.
-- @include clock
-- @include queue
-- @include store_rows
local zset, hash, staged = KEYS[1], KEYS[2], KEYS[3]
local refused, _, delay_ms, _, sent = read_queue(zset, hash)
if refused then return refused end
local now, seconds, micros = server_time()
local rows = redis.call('LRANGE', staged, 0, 3 * tonumber(ARGV[2]) - 1)
if #rows == 0 then return 0 end
redis.call('LTRIM', staged, #rows, -1)
store_rows({zset = zset, hash = hash, channel = ARGV[1], now = now, micros = micros, us = seconds * 1000000 + micros,
  delay_ms = delay_ms, sent = sent}, rows, 1, #rows)
return redis.call('LLEN', staged) / 3
