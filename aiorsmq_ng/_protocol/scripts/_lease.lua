-- Lease ready messages of one queue for one or more callers; earlier parts are served first.
-- Reads: now, seconds, bury and prune_after (from _bury.lua), _past.lua. Defines: lease(keys, parts, dead, notes, label,
--   company) -> replies or a code word.
-- keys: zset, hash, deliveries, name of the caller. parts: flat list of count, vt (ms, -1 = the queue's).
-- dead: where messages go that were received too often, or nil. replies: per part {vt_ms, 0, then per message:
--   id, body, rc, fr}, or for a part that got nothing {vt_ms, ms until the next message is visible or -1};
--   as the last value of a part there may be a table {list of id, strikes, excused; list of id, body, rc, fr,
--   why}: what is known of messages that were delivered before, and what was buried (in the first part).
-- notes: list to which what was leased is added in the form of _retake.lua, the first part under label, and
--   so on. company: the caller holds other messages already.
-- A suspect (see _past.lua) is leased alone: a part gets one of them, or messages that are none.
local function lease(keys, parts, dead, notes, label, company)
  local zset, hash, deliveries, holder = keys[1], keys[2], keys[3], keys[4]
  -- @include queue
  -- @include take
  -- @include spend
  local wanted = 0
  for at = 1, #parts, 2 do wanted = wanted + tonumber(parts[at]) end
  local unfit = dead and examine(dead)
  if unfit then return unfit end
  local pasts, known = {}, false
  local taken, size = take(wanted, function(ids, places, rcs, frs)
    local again, before, firsts = {}, {}, {}
    for i = 1, #places do
      local place, n = places[i], #again + 1
      if rcs[place] > 1 then again[n], before[n], firsts[n] = ids[place], rcs[place] - 1, frs[place] end
    end
    if #again == 0 then return end
    local found = pasts_of(zset, deliveries, again, before, firsts)
    for i = 1, #again do pasts[again[i]], known = found[i], true end
  end, dead and function(id, body, rc, fr)
    local past = pasts[id]
    if rc - (past and past.excused or 0) <= dead.limit then return false end
    spend()
    bury(dead, id, body, rc - 1, fr, maxsize, past)
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
      local past = pasts[id]
      past.time, past.holder = now, holder
      again[#again + 1] = id
      again[#again + 1] = write_past(rc, past, 'h')
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
  -- How many of the next messages may go together.
  local function fitting(count)
    count = math.min(count, (size - served) / 4)
    if not known then return count end
    for i = 0, count - 1 do
      local past = pasts[taken[served + 4 * i + 1]]
      if past and past.strikes > 0 then return (i == 0 and not company) and 1 or i end
    end
    return count
  end

  local replies, vt, vt_ms = {}, nil, nil
  for part = 1, #parts / 2 do
    if parts[2 * part] ~= vt then
      vt = parts[2 * part]
      vt_ms = tonumber(vt)
      if vt_ms < 0 then vt_ms = queue_vt_ms end
    end
    local count = fitting(tonumber(parts[2 * part - 1]))
    if count > 0 then
      local noted, from = #notes, served
      notes[noted + 1], notes[noted + 2], notes[noted + 3] = label + part - 1, vt_ms, count
      -- Leases end one after the other, so that what is left behind does not come back as one.
      local ends, step = now + vt_ms, math.min(10, vt_ms / (10 * count))
      -- A table that is made with its first message in it need not grow for it.
      local reply = {vt_ms, 0, hold(string.format('%.0f', ends))}
      for at = 7, 4 * count - 1, 4 do
        local score = string.format('%.0f', math.floor(ends + (at - 3) / 4 * step))
        reply[at], reply[at + 1], reply[at + 2], reply[at + 3] = hold(score)
      end
      if known then
        local marks = {}
        for at = from, served - 4, 4 do
          local id = taken[at + 1]
          local past = pasts[id]
          if past and past.strikes + past.excused > 0 then
            local size = #marks
            marks[size + 1], marks[size + 2], marks[size + 3] = id, past.strikes, past.excused
          end
        end
        if #marks > 0 then reply[#reply + 1] = {marks, {}} end
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
    keep_pasts(deliveries, again)
    prune_after(zset, deliveries, again)
  end
  if n / 2 < wanted then
    local hint = next_visible_ms()
    for i = 1, #replies do
      if #replies[i] == 2 then replies[i][2] = hint end
    end
  end
  if dead and #dead.rows > 0 then
    local first = replies[1]
    if type(first[#first]) ~= 'table' then first[#first + 1] = {{}, {}} end
    first[#first][2] = dead.rows
  end
  return replies
end
