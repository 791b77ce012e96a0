-- Move the oldest ready payloads of a queue of rmq to a queue of RSMQ, in order, as they are. One that is too long for
-- the target is moved to the rejected list.
-- KEYS: ready list, rejected list, target zset, target hash, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), wake-up channel of the target, how many at most, the random suffixes
--   of as many ids in one text.
-- Returns: how many were moved, how many were rejected; to a repeated call what the first attempt did.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(payloads * log n); callers ask for at most 100 so that other clients can go on.
-- @include clock
-- @include read_queue
-- @include new_id
-- @include idempotency
-- @include wake_waiters
local ready, rejected, zset, hash, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, seconds, micros = server_time()
local before = recall(memory, ARGV[1], ARGV[2])
if before then
  local past_moved, past_refused = string.match(before, '^(%d+) (%d+)$')
  return {tonumber(past_moved) or 0, tonumber(past_refused) or 0}
end
local refusal, _, delay_ms, maxsize, sent = read_queue(zset, hash)
if refusal then return refusal end
-- Read before the first write, so that a key of the wrong type changes nothing.
local present = redis.call('ZCARD', zset)
redis.call('LLEN', ready)
redis.call('LLEN', rejected)
local due, moved, refused = now + delay_ms, 0, 0
local score = string.format('%.0f', due)
while moved + refused < tonumber(ARGV[4]) do
  local payload = redis.call('RPOP', ready)
  if not payload then break end
  if maxsize >= 0 and #payload > maxsize then
    redis.call('LPUSH', rejected, payload)
    refused = refused + 1
  else
    local id = id_of(seconds * 1000000 + micros + moved, string.sub(ARGV[5], 22 * moved + 1, 22 * moved + 22))
    redis.call('ZADD', zset, score, id)
    redis.call('HSET', hash, id, payload)
    moved = moved + 1
  end
end
if moved > 0 then
  redis.call('HSET', hash, 'totalsent', string.format('%.0f', sent + moved))
  redis.pcall('PUBLISH', ARGV[3], present + moved)
  wake_waiters(zset, now, micros, due)
end
if moved + refused > 0 or ARGV[2] ~= '1' then
  forget(memory, ARGV[1], ARGV[2])
  remember(memory, ARGV[1], ARGV[2], moved .. ' ' .. refused)
end
return {moved, refused}
