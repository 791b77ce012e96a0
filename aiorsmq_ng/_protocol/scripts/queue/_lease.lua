-- lease(queue, parts, now, dead, notes, label, has_others) -> replies, or a code word. Leases ready messages of one
--   queue for one or more callers; earlier parts are served first.
-- queue: {zset, hash, deliveries, name of the caller}. parts: flat list of count, vt (ms, -1 = the queue's).
-- dead: dead-letter queue (see _dead_letter.lua), or nil for no limit of deliveries.
-- notes: list to which the leases are added in the form of _replay_receive.lua, the first part under label, the next under
--   label + 1, and so on. has_others: the caller holds other messages already.
-- replies: per part {vt_ms, 0, then per message: id, body, rc, fr}, or for a part that got nothing {vt_ms, ms until the
--   next message is visible or -1}. The last value of a part may be a table of remarks (see _remark.lua): what is known of
--   messages that were delivered before, what was dead-lettered (in the first part), and headers.
-- A suspect (see _delivery_notes.lua) is leased alone: a part gets one of them, or messages that are none.
-- @include read_queue
-- @include take_ready
-- @include dead_letter
-- @include received_too_often
-- @include remove_messages
-- @include allow_writes_when_full
-- @include headers
-- @include remark
local function write_leases(queue, scores, fields, count, received, notes)
  allow_writes_when_full(queue[2])
  local totalrecv = string.format('%.0f', received + count / 2)
  -- unpack() has room for about 7900 values.
  for from = 1, count, 2000 do
    local upto = math.min(count, from + 1999)
    redis.call('ZADD', queue[1], unpack(scores, from, upto))
    redis.call('HSET', queue[2], 'totalrecv', totalrecv, unpack(fields, 2 * from - 1, 2 * upto))
  end
  store_notes(queue[3], notes)
  prune_notes_after(queue[1], queue[3], notes)
end
-- What is known of the messages taken[from + 1] to taken[upto] that were delivered before: id, strikes, excused.
local function marks_of(taken, from, upto, histories)
  local marks = {}
  for at = from, upto - 4, 4 do
    local id = taken[at + 1]
    local history = histories[id]
    if history and history.strikes + history.excused > 0 then
      local size = #marks
      marks[size + 1], marks[size + 2], marks[size + 3] = id, history.strikes, history.excused
    end
  end
  return marks
end
local function lease(queue, parts, now, dead, notes, label, has_others)
  local zset, hash, deliveries, holder = queue[1], queue[2], queue[3], queue[4]
  local refused, queue_vt_ms, _, maxsize, _, received = read_queue(zset, hash)
  refused = refused or dead and check_dead_letters(dead)
  if refused then return refused end
  local wanted = 0
  for at = 1, #parts, 2 do wanted = wanted + tonumber(parts[at]) end
  local histories, known = {}, false
  local taken, size = take_ready(zset, hash, now, wanted, function(ids, places, rcs, frs)
    local again, before, firsts = {}, {}, {}
    for i = 1, #places do
      local place, n = places[i], #again + 1
      if rcs[place] > 1 then again[n], before[n], firsts[n] = ids[place], rcs[place] - 1, frs[place] end
    end
    if #again == 0 then return end
    local found = histories_of(zset, deliveries, again, before, firsts)
    for i = 1, #again do histories[again[i]], known = found[i], true end
  end, dead and function(id, body, rc, fr)
    local history = histories[id]
    if not received_too_often(dead, rc, history) then return false end
    allow_writes_when_full(hash)
    dead_letter(dead, id, body, rc - 1, fr, maxsize, history)
    remove_messages(zset, hash, deliveries, {id})
    return true
  end)
  if dead then finish_dead_letters(dead) end

  local scores, fields, again, n, served = {}, {}, {}, 0, 0
  local now_text = string.format('%.0f', now)
  -- How many of the next count messages a part may get together.
  local function grantable(count)
    for i = 0, count - 1 do
      local history = histories[taken[served + 4 * i + 1]]
      if history and history.strikes > 0 then return (i == 0 and not has_others) and 1 or i end
    end
    return count
  end

  local replies, vt, vt_ms, ends = {}, nil, nil, nil
  for part = 1, #parts / 2 do
    if parts[2 * part] ~= vt then
      vt = parts[2 * part]
      vt_ms = tonumber(vt)
      if vt_ms < 0 then vt_ms = queue_vt_ms end
      ends = math.floor(now + vt_ms + 0.5)
    end
    local count, left = tonumber(parts[2 * part - 1]), (size - served) / 4
    if count > left then count = left end
    if known then count = grantable(count) end
    if count > 0 then
      local noted, from = #notes, served
      notes[noted + 1], notes[noted + 2], notes[noted + 3] = label + part - 1, vt_ms, count
      -- Leases end one after the other, so that abandoned messages do not all come back at once.
      local step = math.min(10, vt_ms / (10 * count))
      -- unpack() has room for about 7900 values. A table that is made with its values in it need not grow.
      local reply = {vt_ms, 0, unpack(taken, from + 1, from + 4 * math.min(count, 1000))}
      for at = 4001, 4 * count do reply[at + 2] = taken[from + at] end
      for i = 0, count - 1 do
        local id, rc, fr = taken[served + 1], taken[served + 3], taken[served + 4]
        local rc_text, fr_text = '1', now_text
        if fr ~= now then fr_text = string.format('%.0f', fr) end
        if rc ~= 1 then
          rc_text = string.format('%.0f', rc)
          -- The first delivery's time is fr; RSMQ stores none for later ones, so a note does.
          local history = histories[id]
          history.time, history.holder = now, holder
          again[#again + 1] = id
          again[#again + 1] = format_note(rc, history, 'h', now)
        end
        -- Scores are whole numbers: the server writes those in full, and faster than string.format does.
        -- The remainder is subtracted because a call of math.floor costs more.
        local score = ends + i * step
        scores[n + 1], scores[n + 2] = score - score % 1, id
        fields[2 * n + 1], fields[2 * n + 2] = id .. ':rc', rc_text
        fields[2 * n + 3], fields[2 * n + 4] = id .. ':fr', fr_text
        noted = noted + 3
        notes[noted + 1], notes[noted + 2], notes[noted + 3] = id, rc_text, fr_text
        n = n + 2
        served = served + 4
      end
      if known then remark(reply, 1, marks_of(taken, from, served, histories)) end
      local flagged = with_headers(taken, from + 1, served, 4)
      if flagged then remark(reply, 3, read_headers(zset, flagged)) end
      replies[part] = reply
    else
      replies[part] = {vt_ms, 0}
    end
  end

  if n > 0 then write_leases(queue, scores, fields, n, received, again) end
  if n / 2 < wanted then
    local hint = next_visible_ms(zset, now)
    for i = 1, #replies do
      if #replies[i] == 2 then replies[i][2] = hint end
    end
  end
  if dead then
    remark(replies[1], 2, dead.rows)
    remark(replies[1], 3, dead.headers)
  end
  return replies
end
