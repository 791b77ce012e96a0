-- Examine single messages, each in its present state, and repair what is still wrong.
-- KEYS: zset, hash, deliveries.
-- ARGV: wake-up channel, 1 = repair or 0 = only report, max_hidden (ms, -1 = none), then ids.
-- Returns: per id '' (sound or gone) or what was wrong, and repaired if asked for: 'not_an_id' a member of the sorted set
--   that cannot be the id of a message: removed from it, nothing else; 'phantom' an id without a body: removed;
--   'orphan' a body whose id is not in the sorted set: can be received again, with its rc and fr; 'leak' fields of a message
--   that is gone: removed; 'hidden_by_clock' and 'too_far' (see _symptoms.lua): visible when they should be.
-- Errors: none.
-- Cost: O(ids * log n); callers ask for at most 50.
-- @include clock
-- @include symptoms
-- @include is_id
-- @include remove_messages
-- @include wake_waiters
-- @include allow_writes_when_full
local zset, hash, deliveries, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local repair, max_hidden_ms = ARGV[2] == '1', tonumber(ARGV[3])
local now, _, micros = server_time()
local usual_ms = usual_wait_ms(hash)
if repair then allow_writes_when_full(hash) end
local reply, sooner = {}, false
local function show(id, score)
  redis.call('ZADD', zset, string.format('%.0f', score), id)
  sooner = true
end
for i = 4, #ARGV do
  local id, found = ARGV[i], ''
  local score = redis.call('ZSCORE', zset, id)
  local body = redis.call('HEXISTS', hash, id) == 1
  local rc, fr, meta = id .. ':rc', id .. ':fr', id .. ':meta'
  if not is_id(id) then
    if score then found = 'not_an_id' end
    if score and repair then redis.call('ZREM', zset, id) end
  elseif score and body then
    local received = receives(hash, {id})
    local kind, due = symptom(id, score_of(score), received[1], received[2], max_hidden_ms, usual_ms, now)
    if due then
      found = kind
      if repair then show(id, due) end
    end
  elseif score then
    found = 'phantom'
    if repair then
      remove_messages(zset, hash, deliveries, {id})
    end
  elseif body then
    -- Other programs may use any field name; only one that looks like an id is taken for one.
    if #id == 32 and string.match(id, '^%w+$') then
      found = 'orphan'
      if repair then show(id, now) end
    end
  else
    local left = redis.call('HMGET', hash, rc, fr, meta)
    if left[1] or left[2] or left[3] then
      found = 'leak'
      if repair then redis.call('HDEL', hash, rc, fr, meta) end
    end
  end
  reply[#reply + 1] = found
end
if sooner then
  redis.pcall('PUBLISH', channel, redis.call('ZCARD', zset))
  wake_waiters(zset, now, micros)
end
return reply
