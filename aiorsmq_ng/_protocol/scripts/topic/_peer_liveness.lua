-- Liveness of peers: which subscribers of a consumer are alive, and what is remembered of those that are not.
--
-- Theory of operation. A consumer may have several peers. Peers of mode broadcast have a queue with copies of their own; peers
-- of mode shared have one queue together. Every receive of a peer is a sign of life, stored in the hash heard.
-- Rule 1. A peer with its own queue is judged by the clock of its consumer, not by that of the server. The consumer's clock
--   advances with every sign of any of its peers, by the time since the last sign, but by a third of the timeout at
--   most. So a time in which the server, or all peers, were away expires no peer.
-- Rule 2. A peer has timed out if the consumer's clock is more than the timeout ahead of the peer's last sign. The first
--   sign in each tenth of the timeout asks its sender to look for such peers.
-- Rule 3. A peer is taken for dead only if nothing was heard of it between the caller's look and the script that ends it:
--   the caller passes the sign that it saw, and the script compares it.
-- Rule 4. A peer that was taken for dead may come back within a day. The last thousand of a topic are remembered.
-- Rule 5. Peers that share a queue need no such care: the sign of a new one forgets others of twice the timeout.
--
-- heard, gone: side keys of the topic. timeout_ms: how long a peer may be silent. A sign is a text: "consumer's clock,
-- server's clock" (ms) for a peer with its own queue, else the server's clock.
-- record_sign(heard, consumer, queue, timeout_ms, now) -> true if it is time to look for silent peers, and ms since the
--   last sign of any.
-- record_shared_sign(heard, field, queue, timeout_ms, now), for a peer that shares a queue.
-- still_silent(heard, queue, sign) -> true if sign is the last one ('' = it does not matter).
-- remember_dead_peer(gone, queue, now).
local function record_sign(heard, consumer, queue, timeout_ms, now)
  local field = 'clock:' .. consumer
  local before, last = string.match(redis.call('HGET', heard, field) or '', '^(%d+) (%d+)$')
  before, last = tonumber(before or now), tonumber(last or now)
  local gap = math.max(0, now - last)
  local clock = before + math.ceil(math.min(gap, timeout_ms / 3))
  local sign = string.format('%.0f %.0f', clock, now)
  redis.call('HSET', heard, field, sign, queue, sign)
  return math.floor(before * 10 / timeout_ms) < math.floor(clock * 10 / timeout_ms), gap
end
local function record_shared_sign(heard, field, queue, timeout_ms, now)
  if redis.call('HSET', heard, field, string.format('%.0f', now)) == 0 then return end
  local all, start = redis.call('HGETALL', heard), queue .. ' '
  for i = 1, #all, 2 do
    local shares = string.sub(all[i], 1, #start) == start
    if shares and now - (tonumber(all[i + 1]) or 0) > 2 * timeout_ms then redis.call('HDEL', heard, all[i]) end
  end
end
local function still_silent(heard, queue, sign)
  return sign == '' or redis.call('HGET', heard, queue) == sign
end
local function remember_dead_peer(gone, queue, now)
  redis.call('ZADD', gone, string.format('%.0f', now), queue)
  redis.call('ZREMRANGEBYRANK', gone, 0, -1001)
  redis.call('PEXPIRE', gone, 86400000)
end
