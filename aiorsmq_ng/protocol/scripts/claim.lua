-- Claim ready messages for a reader that may have to read them again: lease them, or move them out of
-- the queue, and list them under a number. Several calls make one claim; it is sealed by the call
-- that finds no more, or that reaches the limit, and never changes afterwards.
-- KEYS: zset, hash, deliveries, ledger, claim, group. ARGV: fence, number of the claim, messages in the claim
--   at most, by this call at most, lease (ms), latest time at which a message became visible
--   (ms, '' = now), TTL (s), lease or move, and 1 if the ledger may be made.
-- Returns: {messages in the claim, 1 if there will be no more}; an empty claim leaves nothing behind.
-- Errors: queueNotFound, queueCorrupt, fenced, ledgerGone.
-- Cost: O(messages * log n), at most 1000 messages.
local zset, hash, deliveries, ledger, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local fence, claim_number, limit, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease_ms, latest, ttl, moving = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8] == 'move'
-- @include queue
-- @include clock
local known = redis.call('HMGET', ledger, 'fence', 'sealed:' .. claim_number)
if known[1] and known[1] ~= fence then return 'fenced' end
if not known[1] and ARGV[9] ~= '1' then return 'ledgerGone' end
if known[2] then return {tonumber(known[2]), 1} end

local size = redis.call('LLEN', claim) / (moving and 4 or 3)
local wanted = math.max(0, math.min(most, limit - size))
local bound = math.min(now, latest or now)
local ids = redis.call('ZRANGEBYSCORE', zset, '-inf', bound, 'LIMIT', 0, wanted)
if size + #ids == 0 then
  -- A reader that waits for long must not lose its ledger meanwhile.
  if known[1] and not moving and redis.call('TTL', ledger) < ttl / 2 then
    redis.call('EXPIRE', ledger, ttl)
    redis.call('EXPIRE', KEYS[6], ttl)
  end
  return {0, 1}
end

local fields = {}
for i = 1, #ids do
  fields[2 * i - 1], fields[2 * i] = ids[i] .. ':rc', ids[i] .. ':fr'
end
local values = #ids > 0 and redis.call('HMGET', hash, unpack(fields)) or {}
local bodies = moving and #ids > 0 and redis.call('HMGET', hash, unpack(ids)) or {}
local score = string.format('%.0f', now + lease_ms)
local rows, scores, changes, gone, again, taken = {}, {}, {}, {}, {}, 0
for i = 1, #ids do
  local id = ids[i]
  local rc = math.floor(number(values[2 * i - 1], 0) or 0) + 1
  local fr = string.format('%.0f', math.floor(number(values[2 * i], now) or now))
  local at = #rows
  if not moving then
    rows[at + 1], rows[at + 2], rows[at + 3] = id, rc, fr
    scores[2 * i - 1], scores[2 * i] = score, id
    changes[4 * i - 3], changes[4 * i - 2] = fields[2 * i - 1], rc
    changes[4 * i - 1], changes[4 * i] = fields[2 * i], fr
    if rc > 1 then
      again[#again + 1] = id
      again[#again + 1] = string.format('%.0f %.0f', rc, now)
    end
    taken = taken + 1
  else
    -- An id without a body is a phantom: it goes and leaves nothing.
    if bodies[i] then
      rows[at + 1], rows[at + 2], rows[at + 3], rows[at + 4] = id, rc, fr, bodies[i]
      taken = taken + 1
    end
    gone[4 * i - 3], gone[4 * i - 2], gone[4 * i - 1], gone[4 * i] =
      id, fields[2 * i - 1], fields[2 * i], id .. ':meta'
  end
end

if not known[1] then
  redis.call('HSET', ledger, 'fence', fence, 'acked', 0, 'mode', ARGV[8])
end
if size == 0 then redis.call('HSET', ledger, 'open', claim_number) end
if #rows > 0 then redis.call('RPUSH', claim, unpack(rows)) end
if #scores > 0 then
  redis.call('ZADD', zset, unpack(scores))
  redis.call('HSET', hash, unpack(changes))
  -- pcall: what is only there to be looked at must not stand in the way.
  if #again > 0 then
    redis.pcall('HSET', deliveries, unpack(again))
    redis.pcall('EXPIRE', deliveries, 1209600)
  end
end
if #gone > 0 then
  redis.call('ZREM', zset, unpack(ids))
  redis.call('HDEL', hash, unpack(gone))
  redis.pcall('HDEL', deliveries, unpack(ids))
end
if taken > 0 then
  redis.call('HSET', hash, 'totalrecv', string.format('%.0f', received + taken))
end
if not moving then
  -- Moved messages are nowhere else, so what holds them has no end.
  redis.call('EXPIRE', ledger, ttl)
  redis.call('EXPIRE', claim, ttl)
  redis.call('EXPIRE', KEYS[6], ttl)
end
local total, complete = size + taken, #ids < wanted or size + taken >= limit
if complete then
  redis.call('HDEL', ledger, 'open')
  if total > 0 then redis.call('HSET', ledger, 'sealed:' .. claim_number, total) end
end
return {total, complete and 1 or 0}
