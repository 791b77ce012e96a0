-- What is known of a message's deliveries. RSMQ stores how often a message was received (rc) and when it was received
-- first (fr). A note in the side key adds, for a delivery that was not the first or that was returned:
--   "rc time excused strikes state holder", then perhaps a line feed and why the message was dead-lettered.
--   time: of that delivery (ms). excused: deliveries that were returned before work on them began.
--   state: h (held) until the holder has returned it, then r. strikes: consecutive deliveries that vanished with
--   their holders, before this one (h) or including it (r).
-- A delivery whose lease expired in state h has vanished with its holder, and its message is a suspect.
-- A history is the table {time (nil: not known), excused, strikes, returned, holder, why}.
-- read_notes(deliveries, ids) -> per id its note.
-- parse_note(note, rc, fr) -> the history of a message that was received rc times.
-- histories_of(zset, deliveries, ids, rcs, frs) -> the histories of up to 1000 ready messages.
-- format_note(rc, history, state, now) -> a note.
-- note_of_return(note, rc, fr, how, now) -> the note of a delivery that was returned. how: r by a holder that had begun,
--   which ends any suspicion; u by a holder that had not, and then the delivery does not count.
-- store_notes(deliveries, notes) stores a flat list of id, note.
local function read_notes(deliveries, ids)
  local notes = {}
  for from = 1, #ids, 1000 do
    -- pcall: the side key may be of another type or out of reach: then nothing is known.
    local some = redis.pcall('HMGET', deliveries, unpack(ids, from, math.min(#ids, from + 999)))
    if some.err then return {} end
    for i = 1, #some do notes[from + i - 1] = some[i] end
  end
  return notes
end
local function parse_note(note, rc, fr)
  local known, time, rest = string.match(note or '', '^(%d+) (%d+)([^\n]*)')
  local excused, strikes, state, holder = string.match(rest or '', '^ (%d+) (%d+) (%a) ?(.*)$')
  local history = {excused = tonumber(excused or 0), strikes = 1, holder = '',
    why = string.match(note or '', '\n.*$') or ''}
  if tonumber(known) == rc then
    history.time, history.holder = tonumber(time), holder or ''
    history.returned = state == 'r'
    history.strikes = tonumber(strikes or 0) + (history.returned and 0 or 1)
  elseif rc == 1 then
    history.time, history.excused = fr > 0 and fr or nil, 0
  end
  return history
end
local function histories_of(zset, deliveries, ids, rcs, frs)
  local notes, ends, histories = read_notes(deliveries, ids), redis.call('ZMSCORE', zset, unpack(ids)), {}
  for i = 1, #ids do
    local history = parse_note(notes[i], rcs[i], frs[i])
    -- A lease of no length had no holder that could vanish.
    if not history.returned and history.time and tonumber(ends[i]) == history.time then
      history.strikes = history.strikes - 1
    end
    histories[i] = history
  end
  return histories
end
local function format_note(rc, history, state, now)
  return string.format('%.0f %.0f %.0f %.0f %s %s%s', rc, history.time or now, history.excused, history.strikes,
    state, history.holder, history.why)
end
local function note_of_return(note, rc, fr, how, now)
  local history = parse_note(note, rc, fr)
  if how == 'r' then
    history.strikes = 0
  elseif not history.returned then
    -- Earlier strikes stay, but this delivery is none.
    history.excused, history.strikes = history.excused + 1, history.strikes - 1
  end
  return format_note(rc, history, 'r', now)
end
local function store_notes(deliveries, notes)
  -- pcall: notes are not needed to deliver, so a failure here must not fail the script.
  for from = 1, #notes, 4000 do
    redis.pcall('HSET', deliveries, unpack(notes, from, math.min(#notes, from + 3999)))
  end
  if #notes > 0 then redis.pcall('EXPIRE', deliveries, 1209600) end
end
