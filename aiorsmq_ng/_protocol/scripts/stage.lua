-- Set rows aside until their job commits. A call that was made already changes nothing.
-- KEYS: hash, staged. ARGV: rows set aside by the calls before, TTL (s), what to do with rows over
--   maxsize (fail or drop), then per row: id or suffix, delay (ms), body.
-- Returns: {rows set aside in all, dropped by this call}, or {messageTooLong, bytes, maxsize}.
-- Errors: queueNotFound, queueCorrupt. Cost: O(rows), at most 2000 rows.
local zset, hash, staged, before = nil, KEYS[1], KEYS[2], tonumber(ARGV[1])
-- @include queue
-- @include fitting
local rows, first, last, dropped = fitting(ARGV, 4, 3, ARGV[3] == 'drop')
if not rows then return first end
local count = (last - first + 1) / 3
if count > 0 and redis.call('LLEN', staged) == 3 * before then
  redis.call('RPUSH', staged, unpack(rows, first, last))
  redis.call('EXPIRE', staged, ARGV[2])
end
return {before + count, dropped}
