-- Lease ready messages of one queue for one or more callers; earlier parts are served first.
-- Reads: now, seconds, bury (from _bury.lua). Defines: lease(zset, hash, deliveries, parts, dead, notes,
--   label) -> replies or a code word.
-- parts: flat list of count, vt (ms, -1 = the queue's). dead: where messages go that were received
--   too often, or nil. replies: per part {vt_ms, 0, then per message: id, body, rc, fr}, or for a
--   part that got nothing {vt_ms, ms until the next message is visible or -1}. notes: list to which
--   what was leased is added in the form of _retake.lua, the first part under label, and so on.
-- @include prune
local function lease(zset, hash, deliveries, parts, dead, notes, label)
  -- @include queue
  -- @include take
  -- @include spend
  local wanted = 0
  for at = 1, #parts, 2 do wanted = wanted + tonumber(parts[at]) end
  local unfit = dead and examine(dead)
  if unfit then return unfit end
  local taken, size = take(wanted, dead and function(id, body, rc, fr)
    if rc <= dead.limit then return false end
    spend()
    bury(dead, id, body, rc - 1, fr, maxsize)
    redis.call('ZREM', zset, id)
    redis.call('HDEL', hash, id, id .. ':rc', id .. ':fr', id .. ':meta')
    redis.pcall('HDEL', deliveries, id)
    return true
  end)
  if dead then close(dead) end

  local scores, fields, again, n, served = {}, {}, {}, 0, 0
  local now_text = string.format('%.0f', now)
  local function hold(score)
    local id, rc, fr = taken[served + 1], taken[served + 3], taken[served + 4]
    local rc_text, fr_text = '1', now_text
    if fr ~= now then fr_text = string.format('%.0f', fr) end
    if rc ~= 1 then
      rc_text = string.format('%.0f', rc)
      -- The first delivery's time is fr; RSMQ keeps none for later ones, so a side key does.
      again[#again + 1] = id
      again[#again + 1] = rc_text .. ' ' .. now_text
    end
    scores[n + 1], scores[n + 2] = score, id
    fields[2 * n + 1], fields[2 * n + 2] = id .. ':rc', rc_text
    fields[2 * n + 3], fields[2 * n + 4] = id .. ':fr', fr_text
    n = n + 2
    local noted = #notes
    notes[noted + 1], notes[noted + 2], notes[noted + 3] = id, rc_text, fr_text
    served = served + 4
    return id, taken[served - 2], rc, fr
  end

  local replies, vt, vt_ms, score = {}, nil, nil, nil
  for part = 1, #parts / 2 do
    local count = tonumber(parts[2 * part - 1])
    if parts[2 * part] ~= vt then
      vt = parts[2 * part]
      vt_ms = tonumber(vt)
      if vt_ms < 0 then vt_ms = queue_vt_ms end
      score = string.format('%.0f', now + vt_ms)
    end
    count = math.min(count, (size - served) / 4)
    if count > 0 then
      local noted = #notes
      notes[noted + 1], notes[noted + 2], notes[noted + 3] = label + part - 1, vt_ms, count
      -- A table that is made with its first message in it need not grow for it.
      local reply = {vt_ms, 0, hold(score)}
      for at = 7, 4 * count - 1, 4 do
        reply[at], reply[at + 1], reply[at + 2], reply[at + 3] = hold(score)
      end
      replies[part] = reply
    else
      replies[part] = {vt_ms, 0}
    end
  end

  if n > 0 then
    spend()
    -- unpack() has room for some 7900 values.
    for from = 1, n, 2000 do
      local upto = math.min(n, from + 1999)
      redis.call('ZADD', zset, unpack(scores, from, upto))
      redis.call('HSET', hash, 'totalrecv', string.format('%.0f', received + n / 2),
        unpack(fields, 2 * from - 1, 2 * upto))
    end
    -- pcall: what is only there to be looked at must not stand in the way.
    for from = 1, #again, 4000 do
      redis.pcall('HSET', deliveries, unpack(again, from, math.min(#again, from + 3999)))
    end
    if #again > 0 then
      redis.pcall('EXPIRE', deliveries, 1209600)
      prune(zset, deliveries, #again / 2)
    end
  end
  if n / 2 < wanted then
    local hint = next_visible_ms()
    for i = 1, #replies do
      if #replies[i] == 2 then replies[i][2] = hint end
    end
  end
  return replies
end
