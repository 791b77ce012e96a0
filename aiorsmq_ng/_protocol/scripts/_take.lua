-- Choose ready messages, oldest visible-at first, and read them.
-- Reads: zset, hash, now, whole. Defines: take(wanted, pasts, bury) -> flat list of id, body, rc, fr per
--   message and its length, where rc already counts this delivery and fr is its time if it is the
--   first. pasts(ids, places, rcs, frs), if given, gets those at places that were received before.
--   bury(id, body, rc, fr), if given, may remove a message from the queue instead, and says so by
--   returning true.
-- An id without a body (a phantom that another client left) would block the head of the queue:
-- it is removed, and the next one is taken. After 1000 of them the call ends with what it has, so
-- that other clients go on; a hint of 0 ms then tells the caller to come back at once.
local function take(wanted, pasts, bury)
  local taken, size, dropped, more = {}, 0, 0, false
  repeat
    local before = dropped
    local ids = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'LIMIT', 0, wanted + 1)
    more = #ids > wanted
    -- Those taken by an earlier round come first again, because nothing is written yet.
    for from = size / 4 + 1, math.min(#ids, wanted), 1000 do
      local upto, fields, n = math.min(#ids, wanted, from + 999), {}, 0
      for i = from, upto do
        local id = ids[i]
        fields[n + 1], fields[n + 2], fields[n + 3] = id, id .. ':rc', id .. ':fr'
        n = n + 3
      end
      local values = redis.call('HMGET', hash, unpack(fields, 1, n))
      local again, rcs, frs = {}, {}, {}
      for i = from, upto do
        local at = 3 * (i - from)
        if values[at + 2] or values[at + 3] then
          rcs[i] = whole(values[at + 2], 0) + 1
          frs[i] = whole(values[at + 3], now)
          again[#again + 1] = i
        end
      end
      if pasts and #again > 0 then pasts(ids, again, rcs, frs) end
      n = 0
      for i = from, upto do
        local id, body, rc, fr = ids[i], values[n + 1], rcs[i] or 1, frs[i] or now
        n = n + 3
        if not body then
          redis.call('ZREM', zset, id)
          redis.call('HDEL', hash, id .. ':rc', id .. ':fr')
          dropped = dropped + 1
        elseif bury and bury(id, body, rc, fr) then
          dropped = dropped + 1
        else
          taken[size + 1], taken[size + 2], taken[size + 3], taken[size + 4] = id, body, rc, fr
          size = size + 4
        end
      end
    end
  until dropped == before or dropped >= 1000 or not more
  return taken, size
end
-- Hint for a caller that got nothing: milliseconds until the next message becomes visible, or -1.
local function next_visible_ms()
  local head = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  if not head[2] then return -1 end
  return math.max(0, math.ceil(tonumber(head[2]) - now))
end
