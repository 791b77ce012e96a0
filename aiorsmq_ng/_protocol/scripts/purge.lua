-- Remove messages that nobody holds, at most 1000 per call so that other clients go on.
-- KEYS: zset, hash, deliveries, memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), rank among the hidden messages to look at next.
-- Returns: {removed, next rank among the hidden messages or -1 when all were seen, messages before};
--   to a repeated call what the first attempt returned.
-- Errors: queueNotFound, queueCorrupt. Cost: O(1000 * log n).
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
-- @include queue
-- @include clock
-- @include once
local known = recall()
if known then
  local removed, rank, total = string.match(known, '^(%d+) (-?%d+) (%d+)$')
  return {tonumber(removed or 0), tonumber(rank or -1), tonumber(total or 0)}
end
local at, before = tonumber(ARGV[3]), redis.call('ZCARD', zset)
local ids = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'LIMIT', 0, 1000)
local doomed, next_at = ids, at
if #ids == 0 then
  doomed = {}
  ids = redis.call('ZRANGE', zset, at, at + 999)
  local fields = {}
  for i = 1, #ids do fields[i] = ids[i] .. ':rc' end
  local counts = #ids > 0 and redis.call('HMGET', hash, unpack(fields)) or {}
  for i = 1, #ids do
    if not counts[i] then doomed[#doomed + 1] = ids[i] end
  end
  next_at = #ids < 1000 and -1 or at + #ids - #doomed
end
if #doomed > 0 then
  local fields = {}
  for i = 1, #doomed do
    fields[#fields + 1] = doomed[i]
    fields[#fields + 1] = doomed[i] .. ':rc'
    fields[#fields + 1] = doomed[i] .. ':fr'
    fields[#fields + 1] = doomed[i] .. ':meta'
  end
  redis.call('ZREM', zset, unpack(doomed))
  redis.call('HDEL', hash, unpack(fields))
  redis.pcall('HDEL', deliveries, unpack(doomed))
end
local outcome = string.format('%d %d %d', #doomed, next_at, before)
if #doomed > 0 then
  remember(outcome)
elseif again then
  forget()
  remember(outcome)
end
return {#doomed, next_at, before}
