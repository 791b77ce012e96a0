-- Make time pass for the messages of a queue, for tests: each becomes visible that much earlier. All move alike, ready
-- ones too, so the order of delivery stays.
-- KEYS: zset, hash.
-- ARGV: wake-up channel, time (ms), then the ids of messages that do not move.
-- Returns: number of messages that became visible by it.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(n * log n) in one step; not for production.
-- @include clock
-- @include queue
-- @include wake_waiters
local zset, hash, channel, by_ms = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local refused = read_queue(zset, hash)
if refused then return refused end
local now, _, micros = server_time()
local stays = {}
for i = 3, #ARGV do stays[ARGV[i]] = true end
local range = redis.call('ZRANGE', zset, 0, -1, 'WITHSCORES')
local changes, visible = {}, 0
for i = 1, #range, 2 do
  local score = tonumber(range[i + 1])
  if not stays[range[i]] then
    changes[#changes + 1] = string.format('%.17g', score - by_ms)
    changes[#changes + 1] = range[i]
    if score > now and score - by_ms <= now then visible = visible + 1 end
  end
end
for from = 1, #changes, 4000 do
  redis.call('ZADD', zset, unpack(changes, from, math.min(#changes, from + 3999)))
end
-- Also if nothing is visible yet: waiters know when the next message was due, and that changed.
if #changes > 0 then
  redis.call('PUBLISH', channel, #range / 2)
  wake_waiters(zset, now, micros)
end
return visible
