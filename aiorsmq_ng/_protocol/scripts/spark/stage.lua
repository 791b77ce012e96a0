-- Store rows until their job commits. A call that was made already changes nothing.
-- KEYS: zset, hash, staged.
-- ARGV: rows stored by the calls before, TTL (s), what to do with rows over maxsize (fail or drop), then per row: suffix
--   or = and an id (headers may follow: _row_headers.lua), delay (ms), body.
-- Returns: {rows staged in all, dropped by this call}, or {messageTooLong, bytes, maxsize}, or {headersRefused, error of the
--   server}.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(rows), at most 2000 rows.
-- @include read_queue
-- @include check_size
-- @include row_headers
local zset, staged, before = KEYS[1], KEYS[3], tonumber(ARGV[1])
local refused, _, _, maxsize = read_queue(nil, KEYS[2])
if refused then return refused end
local rows, first, last, dropped = check_size(ARGV, 4, 3, maxsize, ARGV[3] == 'drop')
if not rows then return first end
local no_headers = refused_row_headers(zset, rows, first, last)
if no_headers then return no_headers end
local count = (last - first + 1) / 3
if count > 0 and redis.call('LLEN', staged) == 3 * before then
  redis.call('RPUSH', staged, unpack(rows, first, last))
  redis.call('EXPIRE', staged, ARGV[2])
end
return {before + count, dropped}
