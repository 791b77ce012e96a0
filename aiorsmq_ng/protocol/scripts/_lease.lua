-- Lease ready messages of one queue for one or more callers; earlier parts are served first.
-- Reads: now, seconds, bury (from _bury.lua). Defines: lease(zset, hash, deliveries, parts, dead) ->
--   replies or a code word.
-- parts: flat list of count, vt (ms, -1 = the queue's). dead: where messages go that were received
--   too often, or nil. replies: per part {vt_ms, 0, then per message: id, body, rc, fr}, or for a
--   part that got nothing {vt_ms, ms until the next message is visible or -1}.
local function lease(zset, hash, deliveries, parts, dead)
  -- @include queue
  -- @include take
  -- @include spend
  local wanted = 0
  for at = 1, #parts, 2 do wanted = wanted + tonumber(parts[at]) end
  local unfit = dead and examine(dead)
  if unfit then return unfit end
  local taken = take(wanted, dead and function(id, body, rc, fr)
    if rc <= dead.limit then return false end
    spend()
    bury(dead, id, body, rc - 1, fr, maxsize)
    redis.call('ZREM', zset, id)
    redis.call('HDEL', hash, id, id .. ':rc', id .. ':fr', id .. ':meta')
    redis.pcall('HDEL', deliveries, id)
    return true
  end)
  if dead then close(dead) end
  if #taken > 0 then spend() end

  local replies, scores, fields, again, served = {}, {}, {}, {}, 0
  local function flush()
    if #scores > 0 then
      redis.call('ZADD', zset, unpack(scores))
      redis.call('HSET', hash, unpack(fields))
      scores, fields = {}, {}
    end
  end
  for at = 1, #parts, 2 do
    local count, vt_ms = tonumber(parts[at]), tonumber(parts[at + 1])
    if vt_ms < 0 then vt_ms = queue_vt_ms end
    local score = string.format('%.0f', now + vt_ms)
    local reply = {vt_ms, 0}
    while count > 0 and served < #taken do
      served, count = served + 1, count - 1
      local id, body, rc, fr = unpack(taken[served])
      local size = #reply
      reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = id, body, rc, fr
      scores[#scores + 1] = score
      scores[#scores + 1] = id
      size = #fields
      fields[size + 1], fields[size + 2] = id .. ':rc', rc
      fields[size + 3], fields[size + 4] = id .. ':fr', string.format('%.0f', fr)
      if size >= 4000 then flush() end
      -- The first delivery's time is fr; RSMQ keeps none for later ones, so a side key does.
      if rc > 1 then
        again[#again + 1] = id
        again[#again + 1] = string.format('%.0f %.0f', rc, now)
      end
    end
    replies[#replies + 1] = reply
  end

  if #taken > 0 then
    flush()
    redis.call('HSET', hash, 'totalrecv', string.format('%.0f', received + #taken))
    -- pcall: what is only there to be looked at must not stand in the way.
    for from = 1, #again, 4000 do
      redis.pcall('HSET', deliveries, unpack(again, from, math.min(#again, from + 3999)))
    end
    if #again > 0 then redis.pcall('EXPIRE', deliveries, 1209600) end
  end
  if served < wanted then
    local hint = next_visible_ms()
    for i = 1, #replies do
      if #replies[i] == 2 then replies[i][2] = hint end
    end
  end
  return replies
end
