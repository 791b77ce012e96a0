-- A repeated receive: leases that an earlier attempt of the same call took are noted when they are taken, and renewed when
-- the call is repeated. A message that was received by another caller since, or deleted, stays as it is.
-- note_leases(notes, label, reply, first) appends the leases of a reply, from its first message on (a reply begins
--   with vt_ms).
-- note_dead_letters(notes, number, dead) appends what went from queue number to its dead letters; after all leases.
-- replay_receive(text, call, keys_of, dead_of) -> list of {label, vt_ms, rows, marks, headers}, a table of dead letters, and
--   a table of their headers.
--   rows: id, body, rc, fr per message whose receipt is still valid, its lease renewed; marks: id, strikes,
--   excused of those delivered before; headers: id, headers of those that have some; dead letters that still exist: per
--   queue number id, body, rc, fr, why. A recall (attempt 0) makes the messages visible instead, and returns none of them.
--   text: the notes. call: {memory, number, attempt, now, micros}. keys_of(label) -> zset, hash, deliveries of the queue;
--   dead_of(number) -> hash, deliveries, zset of its dead-letter queue.
-- @include idempotency
-- @include delivery_notes
-- @include wake_waiters
-- @include allow_writes_when_full
-- @include headers
local function note_leases(notes, label, reply, first)
  local size = #notes
  notes[size + 1], notes[size + 2], notes[size + 3] = label, reply[1], (#reply - first + 1) / 4
  for at = first, #reply, 4 do
    size = #notes
    notes[size + 1], notes[size + 2] = reply[at], reply[at + 2]
    notes[size + 3] = string.format('%.0f', reply[at + 3])
  end
end
local function note_dead_letters(notes, number, dead)
  for at = 1, dead and #dead.rows or 0, 5 do
    notes[#notes + 1] = 'dead'
    notes[#notes + 1] = number
    notes[#notes + 1] = dead.rows[at]
  end
end
local function replay_dead_letters(words, at, dead_of)
  local found, headers, bytes = {}, {}, 0
  while words[at] == 'dead' do
    local number, id = tonumber(words[at + 1]), words[at + 2]
    local hash, deliveries, zset = dead_of(number)
    local stored = redis.call('HMGET', hash, id, id .. ':rc', id .. ':fr')
    if stored[1] and stored[2] and stored[3] then
      local rows = found[number] or {}
      local size, rc, fr = #rows, tonumber(stored[2]), tonumber(stored[3])
      bytes = bytes + #stored[1]
      rows[size + 1], rows[size + 2], rows[size + 3], rows[size + 4] = id, bytes <= 1048576 and stored[1] or '', rc, fr
      rows[size + 5] = string.sub(parse_note(read_notes(deliveries, {id})[1], rc, fr).why, 2)
      found[number], headers[number] = rows, headers[number] or {}
      local some = read_headers(zset, with_headers({id}))
      for i = 1, #some do headers[number][#headers[number] + 1] = some[i] end
    end
    at = at + 3
  end
  return found, headers
end
-- Renew, or give back, the leases of one group. keys: zset, hash, deliveries; at: place of its first message in words.
local function replay_group(keys, call, vt_ms, words, at, count)
  local zset, hash, deliveries, now, recalled = keys[1], keys[2], keys[3], call.now, tonumber(call.attempt) == 0
  local rows, marks, over, held, score = {}, {}, {}, {}, string.format('%.0f', recalled and now or now + vt_ms)
  allow_writes_when_full(hash)
  for i = at, at + 3 * count - 3, 3 do
    local id, rc, fr = words[i], words[i + 1], words[i + 2]
    local stored = redis.call('HMGET', hash, id, id .. ':rc', id .. ':fr')
    if stored[1] and stored[2] == rc and stored[3] == fr and redis.call('ZSCORE', zset, id) then
      redis.call('ZADD', zset, score, id)
      local size = #rows
      rows[size + 1], rows[size + 2], rows[size + 3], rows[size + 4] = id, stored[1], tonumber(rc), tonumber(fr)
      held[#held + 1] = id
      local text = rc ~= '1' and read_notes(deliveries, {id})[1]
      if recalled then
        over[#over + 1] = id
        over[#over + 1] = note_of_return(text, tonumber(rc), tonumber(fr), 'u', now)
      elseif text then
        local history = parse_note(text, tonumber(rc), tonumber(fr))
        size = #marks
        -- The present delivery has not vanished, so it is no strike.
        marks[size + 1], marks[size + 2], marks[size + 3] = id, math.max(0, history.strikes - 1), history.excused
      end
    end
  end
  if recalled and #rows > 0 then
    store_notes(deliveries, over)
    redis.pcall('PUBLISH', zset .. ':ng:wake', redis.call('ZCARD', zset))
    wake_waiters(zset, now, call.micros, now)
    return {}, {}, {}
  end
  return rows, marks, read_headers(zset, with_headers(held))
end
local function replay_receive(text, call, keys_of, dead_of)
  local words, groups, at = {}, {}, 1
  for word in string.gmatch(text .. '\n', '([^\n]*)\n') do words[#words + 1] = word end
  while at <= #words do
    local label, vt_ms, count = tonumber(words[at]), tonumber(words[at + 1]), tonumber(words[at + 2])
    if not (label and vt_ms and count) or count < 0 then break end
    groups[#groups + 1] = {label, vt_ms, replay_group({keys_of(label)}, call, vt_ms, words, at + 3, count)}
    at = at + 3 + 3 * count
  end
  local dead_letters, dead_headers = replay_dead_letters(words, at, dead_of)
  -- From now on earlier attempts are late. After a recall the messages are no longer the caller's.
  if #words > 1 then
    remember(call.memory, call.number, call.attempt, tonumber(call.attempt) > 0 and text or '')
  end
  return groups, dead_letters, dead_headers
end
