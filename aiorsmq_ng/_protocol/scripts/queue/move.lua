-- Move one leased message to another queue, fenced by its receipt.
-- KEYS: zset, hash, deliveries, target zset, target hash, index, reason, target deliveries.
-- ARGV: id, rc, fr, target's name, wake-up channel of the target, delay (ms, -1 = the target's), keep ('1': rc and fr are
--   kept, any size is accepted, and a missing target is created), reason ('' none), TTL of the reason (s).
-- Returns: 1 moved, 0 gone, -1 received by another caller since, or {messageTooLong, bytes, maxsize}.
-- Errors: queueNotFound (the target), queueCorrupt.
-- Cost: O(log n).
-- @include clock
-- @include number
-- @include check_receipt
-- @include delivery_notes
-- @include wake_waiters
-- @include fill_attributes
-- @include remove_messages
-- @include copy_headers
-- @include allow_writes_when_full
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
local target_zset, target_hash, index, reason = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, rc, fr, target, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local delay_ms, keep = tonumber(ARGV[6]), ARGV[7] == '1'
local now, seconds, micros = server_time()
local held = check_receipts(zset, hash, ARGV, {1})[1]
local body = redis.call('HGET', hash, id)
if held == 'stale' then return -1 end
if held == 'gone' or not body then return 0 end

local stored = redis.call('HMGET', target_hash, 'delay', 'maxsize', 'totalsent', 'vt')
redis.call('ZCARD', target_zset)
local missing = not (stored[1] and stored[2] and stored[4])
if missing and not keep then return 'queueNotFound' end
local target_delay, maxsize = number(stored[1], 0), number(stored[2], -1)
local sent = number(stored[3], 0)
if not (target_delay and maxsize and sent) or target_delay < 0 or sent % 1 ~= 0 then
  return 'queueCorrupt'
end
if not keep and maxsize >= 0 and #body > maxsize then
  return {'messageTooLong', #body, maxsize}
end
allow_writes_when_full(hash)
if missing then
  redis.call('SADD', index, target)
  fill_attributes(target_hash, 30, 0, redis.call('HGET', hash, 'maxsize') or 65536, seconds)
end
if delay_ms < 0 then delay_ms = math.floor(target_delay * 1000 + 0.5) end

redis.call('ZADD', target_zset, string.format('%.0f', now + delay_ms), id)
redis.call('HSET', target_hash, id, body, 'totalsent', string.format('%.0f', sent + 1))
if keep then
  redis.call('HSET', target_hash, id .. ':rc', rc, id .. ':fr', fr)
  -- Its holder lived to reject it, so it is no suspect. Why it was dead-lettered earlier does not matter any more.
  local note = rc ~= '1' and string.match(read_notes(deliveries, {id})[1] or '', '^[^\n]*')
  store_notes(KEYS[8], {id, note_of_return(note, tonumber(rc), tonumber(fr), 'r', now)})
end
-- What is kept so is a dead letter.
copy_headers(zset, target_zset, {id}, keep and DEAD_LETTERS_MS or delay_ms)
if ARGV[8] ~= '' then redis.call('SET', reason, fr .. ' ' .. ARGV[8], 'EX', ARGV[9]) end
remove_messages(zset, hash, deliveries, {id})
redis.pcall('PUBLISH', channel, redis.call('ZCARD', target_zset))
wake_waiters(target_zset, now, micros, now + delay_ms)
return 1
