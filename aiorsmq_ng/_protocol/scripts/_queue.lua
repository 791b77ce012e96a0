-- The queue's stored attributes. A queue exists if vt, delay and maxsize are all there.
-- Reads: zset (or nil), hash. Defines: queue_vt_ms, queue_delay_ms, maxsize, sent, received (numbers).
-- Returns early: queueNotFound, queueCorrupt.
local stored = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize', 'totalsent', 'totalrecv')
if not (stored[1] and stored[2] and stored[3]) then
  -- A key of another type in its place is an error, and not a queue that is missing.
  if zset then redis.call('ZCARD', zset) end
  return 'queueNotFound'
end
-- @include number
local queue_vt_ms, queue_delay_ms, maxsize = number(stored[1]), number(stored[2]), number(stored[3])
local sent, received = number(stored[4], 0), number(stored[5], 0)
if not (queue_vt_ms and queue_delay_ms and maxsize and sent and received)
  or queue_vt_ms < 0 or queue_delay_ms < 0 or sent % 1 ~= 0 or received % 1 ~= 0 then
  return 'queueCorrupt'
end
-- Other clients store fractions of a second; scores are whole milliseconds.
queue_vt_ms = math.floor(queue_vt_ms * 1000 + 0.5)
queue_delay_ms = math.floor(queue_delay_ms * 1000 + 0.5)
