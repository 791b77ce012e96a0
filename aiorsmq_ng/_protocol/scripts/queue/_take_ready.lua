-- Choose ready messages, the one that became visible first in front, and read them.
-- take_ready(zset, hash, now, wanted, on_redelivered, divert) -> flat list of id, body, rc, fr per message, and its
--   length. rc counts this delivery already; fr is now if it is the first.
--   on_redelivered(ids, places, rcs, frs), if given, gets the places of messages that were received before.
--   divert(id, body, rc, fr), if given, may remove a message from the queue instead, and then returns true.
-- next_visible_ms(zset, now) -> ms until the next message becomes visible, or -1 if the queue is empty.
-- An id without a body (a phantom that another client left), and a member that is no id, would block the head of the
-- queue: it is removed, and the next message is taken. After 1000 removals the call returns what it has, so that other clients can go on; a
-- hint of 0 ms then asks the caller to come back at once.
-- @include number
-- @include is_id
-- @include remove_messages
local function take_ready(zset, hash, now, wanted, on_redelivered, divert)
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
      for at = 2, n, 3 do
        if values[at] or values[at + 1] then
          local i = from + (at - 2) / 3
          rcs[i] = whole(values[at], 0) + 1
          frs[i] = whole(values[at + 1], now)
          again[#again + 1] = i
        end
      end
      if on_redelivered and #again > 0 then on_redelivered(ids, again, rcs, frs) end
      n = 0
      for i = from, upto do
        local id, body, rc, fr = ids[i], values[n + 1], rcs[i] or 1, frs[i] or now
        n = n + 3
        if not body or not is_id(id) then
          remove_messages(zset, hash, nil, {id})
          dropped = dropped + 1
        elseif divert and divert(id, body, rc, fr) then
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
local function next_visible_ms(zset, now)
  local head = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  if not head[2] then return -1 end
  return math.max(0, math.ceil(tonumber(head[2]) - now))
end
