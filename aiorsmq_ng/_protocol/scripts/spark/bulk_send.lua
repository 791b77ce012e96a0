-- Store rows of one partition of a job, each once however often the call is made. A mark under the job stores how many of
-- the partition's rows are sent, and a digest of them; rows below it are skipped, also if their messages are
-- consumed since.
-- KEYS: zset, hash, marks.
-- ARGV: wake-up channel, partition, number of the first row, digest of the rows up to the last one, TTL of the mark (s), what
--   to do with rows over maxsize (fail or drop), then the suffixes of all ids in one text, the delay of all rows (ms, -1 =
--   the queue's) and per row its body; or two empty values and per row: suffix or = and an id (headers may follow: _row_headers.lua), delay (ms), body.
-- Returns: {rows sent before, from the first one of the call on, also beyond its last one; stored, too long and dropped, in the
--   queue already}, or {messageTooLong, bytes, maxsize}, or {headersRefused, error of the server}, and then
--   nothing was stored.
-- Errors: queueNotFound, queueCorrupt, rowsDiffer.
-- Cost: O(rows * log n), at most 2000 rows.
-- @include clock
-- @include read_queue
-- @include check_size
-- @include store_rows
local zset, hash, marks, partition = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
local suffixes = ARGV[7] ~= '' and ARGV[7] or nil
local width = suffixes and 1 or 3
local from, count = tonumber(ARGV[3]), (#ARGV - 8) / width
local refused, _, delay_ms, maxsize, sent = read_queue(zset, hash)
if refused then return refused end
local now, seconds, micros = server_time()
local mark, digest = string.match(redis.call('HGET', marks, partition) or '', '^(%d+) (.*)$')
mark = tonumber(mark or 0)
if mark >= from + count then
  if mark == from + count and digest ~= ARGV[4] then return 'rowsDiffer' end
  return {mark - from, 0, 0, 0}
end
local skipped = math.max(0, mark - from)
local rows, from_row, upto_row, dropped = check_size(ARGV, 9 + width * skipped, width, maxsize, ARGV[6] == 'drop')
if not rows then return from_row end
local no_headers = not suffixes and refused_row_headers(zset, rows, from_row, upto_row)
if no_headers then return no_headers end
redis.call('HSET', marks, partition, string.format('%.0f %s', from + count, ARGV[4]))
redis.call('EXPIRE', marks, ARGV[5])
local stored, existing = store_rows({zset = zset, hash = hash, channel = ARGV[1], now = now, micros = micros,
  us = seconds * 1000000 + micros, delay_ms = delay_ms, sent = sent}, rows, from_row, upto_row, suffixes, ARGV[8])
return {skipped, stored, dropped, existing}
