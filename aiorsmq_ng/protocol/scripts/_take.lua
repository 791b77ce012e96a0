-- Choose ready messages, oldest visible-at first, and read them.
-- Reads: zset, hash, now, number. Defines: take(wanted, bury) -> list of {id, body, rc, fr}, where rc
--   already counts this delivery and fr is its time if it is the first. bury(id, body, rc, fr), if
--   given, may remove a message from the queue instead, and says so by returning true.
-- An id without a body (a phantom that another client left) would block the head of the queue:
-- it is removed, and the next one is taken. After 1000 of them the call ends with what it has, so
-- that other clients go on; a hint of 0 ms then tells the caller to come back at once.
local function take(wanted, bury)
  local taken, seen, dropped, more = {}, {}, 0, false
  repeat
    local before = dropped
    local ids = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'LIMIT', 0, wanted + 1)
    more = #ids > wanted
    local fresh = {}
    for i = 1, math.min(#ids, wanted) do
      if not seen[ids[i]] then
        seen[ids[i]] = true
        fresh[#fresh + 1] = ids[i]
      end
    end
    for from = 1, #fresh, 1000 do
      local upto, fields = math.min(#fresh, from + 999), {}
      for i = from, upto do
        fields[#fields + 1] = fresh[i]
        fields[#fields + 1] = fresh[i] .. ':rc'
        fields[#fields + 1] = fresh[i] .. ':fr'
      end
      local values = redis.call('HMGET', hash, unpack(fields))
      for i = from, upto do
        local at = 3 * (i - from) + 1
        if values[at] then
          local rc = math.floor(number(values[at + 1], 0) or 0) + 1
          local fr = math.floor(number(values[at + 2], now) or now)
          if bury and bury(fresh[i], values[at], rc, fr) then
            dropped = dropped + 1
          else
            taken[#taken + 1] = {fresh[i], values[at], rc, fr}
          end
        else
          redis.call('ZREM', zset, fresh[i])
          redis.call('HDEL', hash, fresh[i] .. ':rc', fresh[i] .. ':fr')
          dropped = dropped + 1
        end
      end
    end
  until dropped == before or dropped >= 1000 or not more
  return taken
end
-- Hint for a caller that got nothing: milliseconds until the next message becomes visible, or -1.
local function next_visible_ms()
  local head = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  if not head[2] then return -1 end
  return math.max(0, math.ceil(tonumber(head[2]) - now))
end
