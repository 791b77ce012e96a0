-- Say that a peer is alive.
-- KEYS: topic, heard, gone. ARGV: queue, field of the peer in heard, consumer (empty: its peers share).
-- Returns: {1 subscribed, 0 not, -1 it was taken for dead and may come back; 1 if it is time to look for
--   silent siblings: a tenth of the silence after the last time, by the first of them that is heard of then}.
-- Cost: O(1).
local topic, heard = KEYS[1], KEYS[2]
-- @include clock
-- @include signs
local record = redis.call('HGET', topic, 'q:' .. ARGV[1]) or ''
local silence = tonumber(string.match(record, '^on %a+ (%d+) '))
if not silence then
  local gone = ARGV[3] ~= '' and redis.call('ZSCORE', KEYS[3], ARGV[1])
  return {gone and redis.call('HEXISTS', heard, 'clock:' .. ARGV[3]) == 1 and -1 or 0, 0}
end
-- See _spend.lua: a full server takes what follows, so that its queues can be emptied.
redis.call('HDEL', heard, '')
if ARGV[3] == '' then
  hear(ARGV[2], ARGV[1], silence)
  return {1, 0}
end
return {1, tick(ARGV[3], ARGV[1], silence) and 1 or 0}
