-- Record that a peer is alive.
-- KEYS: topic, heard, gone.
-- ARGV: queue, field of the peer in heard, consumer ('' = its peers share the queue).
-- Returns: {1 subscribed, 0 not, -1 it was taken for dead and may come back; 1 if it is time to look for silent peers:
--   once per tenth of the timeout}.
-- Errors: none.
-- Cost: O(1).
-- @include clock
-- @include peer_liveness
-- @include allow_writes_when_full
local topic, heard = KEYS[1], KEYS[2]
local now = server_time()
local record = redis.call('HGET', topic, 'q:' .. ARGV[1]) or ''
local timeout_ms = tonumber(string.match(record, '^on %a+ (%d+) '))
if not timeout_ms then
  local gone = ARGV[3] ~= '' and redis.call('ZSCORE', KEYS[3], ARGV[1])
  return {gone and redis.call('HEXISTS', heard, 'clock:' .. ARGV[3]) == 1 and -1 or 0, 0}
end
-- Peers must stay alive on a full server, so that its queues can be emptied.
allow_writes_when_full(heard)
if ARGV[3] == '' then
  record_shared_sign(heard, ARGV[2], ARGV[1], timeout_ms, now)
  return {1, 0}
end
return {1, record_sign(heard, ARGV[3], ARGV[1], timeout_ms, now) and 1 or 0}
