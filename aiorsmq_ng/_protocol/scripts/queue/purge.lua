-- Remove messages that are not leased, at most 1000 per call so that other clients can go on.
-- KEYS: zset, hash, deliveries, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), rank among the hidden messages to look at next.
-- Returns: {removed, next rank among the hidden messages or -1 at the end, number of messages before}; to a repeated call
--   what the first attempt returned.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(1000 * log n).
-- @include clock
-- @include read_queue
-- @include idempotency
-- @include is_id
-- @include remove_messages
-- @include lean_lease
local zset, hash, deliveries, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refused = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local known = recall(memory, ARGV[1], ARGV[2])
if known then
  local removed, rank, total = string.match(known, '^(%d+) (-?%d+) (%d+)$')
  return {tonumber(removed or 0), tonumber(rank or -1), tonumber(total or 0)}
end
local at, before = tonumber(ARGV[3]), redis.call('ZCARD', zset)
local ids = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'LIMIT', 0, 1000)
local doomed, next_at = ids, at
if #ids == 0 then
  doomed = {}
  local range, fields, scores = redis.call('ZRANGE', zset, at, at + 999, 'WITHSCORES'), {}, {}
  ids = {}
  for i = 1, #range, 2 do
    ids[#ids + 1], scores[#scores + 1], fields[#fields + 1] = range[i], range[i + 1], range[i] .. ':rc'
  end
  local counts = #ids > 0 and redis.call('HMGET', hash, unpack(fields)) or {}
  for i = 1, #ids do
    if not (counts[i] or is_lean(scores[i])) or not is_id(ids[i]) then doomed[#doomed + 1] = ids[i] end
  end
  next_at = #ids < 1000 and -1 or at + #ids - #doomed
end
remove_messages(zset, hash, deliveries, doomed)
local outcome = string.format('%d %d %d', #doomed, next_at, before)
if #doomed > 0 then
  remember(memory, ARGV[1], ARGV[2], outcome)
elseif ARGV[2] ~= '1' then
  forget(memory, ARGV[1], ARGV[2])
  remember(memory, ARGV[1], ARGV[2], outcome)
end
return {#doomed, next_at, before}
