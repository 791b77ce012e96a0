-- Store rows until their job commits. A call that was made already changes nothing.
-- KEYS: hash, staged.
-- ARGV: rows stored by the calls before, TTL (s), what to do with rows over maxsize (fail or drop), then per row: suffix
--   or = and an id, delay (ms), body.
-- Returns: {rows staged in all, dropped by this call}, or {messageTooLong, bytes, maxsize}.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(rows), at most 2000 rows.
-- @include read_queue
-- @include check_size
local staged, before = KEYS[2], tonumber(ARGV[1])
local refused, _, _, maxsize = read_queue(nil, KEYS[1])
if refused then return refused end
local rows, first, last, dropped = check_size(ARGV, 4, 3, maxsize, ARGV[3] == 'drop')
if not rows then return first end
local count = (last - first + 1) / 3
if count > 0 and redis.call('LLEN', staged) == 3 * before then
  redis.call('RPUSH', staged, unpack(rows, first, last))
  redis.call('EXPIRE', staged, ARGV[2])
end
return {before + count, dropped}
