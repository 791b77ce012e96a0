-- Delete messages by id, whichever client holds them, but only those under lease. A queue that does not exist has no
-- messages: all are gone.
-- KEYS: zset, hash, deliveries.
-- ARGV: ids, each once.
-- Returns: per id 1 deleted, 0 gone, -1 not under lease.
-- Errors: none.
-- Cost: O(messages * log n).
-- @include clock
-- @include number
-- @include is_id
-- @include remove_messages
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
local now = server_time()
local fields, reply = {}, {}
for i = 1, #ARGV do fields[i] = ARGV[i] .. ':rc' end
local scores = redis.call('ZMSCORE', zset, unpack(ARGV))
local counts = redis.call('HMGET', hash, unpack(fields))
for i = 1, #ARGV do
  local found = scores[i] and is_id(ARGV[i])
  reply[i] = found and -1 or 0
  if found and tonumber(scores[i]) > now and (number(counts[i], 0) or 0) > 0 then
    remove_messages(zset, hash, deliveries, {ARGV[i]})
    reply[i] = 1
  end
end
return reply
