-- Set rows aside until their job commits. A call that was made already changes nothing.
-- KEYS: hash, staged. ARGV: rows set aside by the calls before, TTL (s), what to do with rows over
--   maxsize (fail or drop), then per row: id or suffix, delay (ms), body.
-- Returns: {rows set aside in all, dropped by this call}, or {messageTooLong, bytes, maxsize}.
-- Errors: queueNotFound, queueCorrupt. Cost: O(rows), at most 2000 rows.
local hash, staged, before = KEYS[1], KEYS[2], tonumber(ARGV[1])
-- @include queue
local rows, dropped = {}, 0
for at = 4, #ARGV, 3 do
  if maxsize >= 0 and #ARGV[at + 2] > maxsize then
    if ARGV[3] == 'fail' then return {'messageTooLong', #ARGV[at + 2], maxsize} end
    dropped = dropped + 1
  else
    local size = #rows
    rows[size + 1], rows[size + 2], rows[size + 3] = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  end
end
if #rows > 0 and redis.call('LLEN', staged) == 3 * before then
  redis.call('RPUSH', staged, unpack(rows))
  redis.call('EXPIRE', staged, ARGV[2])
end
return {before + #rows / 3, dropped}
