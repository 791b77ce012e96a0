-- The attributes of a queue. A queue exists if vt, delay and maxsize are all stored.
-- read_queue(zset, hash) -> a code word (queueNotFound or queueCorrupt) or nil, then vt (ms), delay (ms),
--   maxsize (bytes), messages sent, messages received, maxsize as stored (text). zset may be nil.
-- @include number
local function read_queue(zset, hash)
  local stored = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize', 'totalsent', 'totalrecv')
  if not (stored[1] and stored[2] and stored[3]) then
    -- A key of another type is an error, not a missing queue: let the server report it.
    if zset then redis.call('ZCARD', zset) end
    return 'queueNotFound'
  end
  local vt, delay, maxsize = number(stored[1]), number(stored[2]), number(stored[3])
  local sent, received = number(stored[4], 0), number(stored[5], 0)
  if not (vt and delay and maxsize and sent and received)
    or vt < 0 or delay < 0 or sent % 1 ~= 0 or received % 1 ~= 0 then
    return 'queueCorrupt'
  end
  -- Other clients store fractions of a second; scores are whole milliseconds.
  return nil, math.floor(vt * 1000 + 0.5), math.floor(delay * 1000 + 0.5), maxsize, sent, received, stored[3]
end
