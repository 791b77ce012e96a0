-- What is known of a message's deliveries. RSMQ keeps their number (rc) and the time of the first (fr); the
-- side key adds, for a delivery that was not the first or that was returned in order, a note:
--   "rc time excused strikes state holder", then perhaps a line feed and why it was put aside.
--   time: of that delivery (ms). excused: deliveries that were given back before work on them began.
--   state: h (held) until its holder has returned it, then r. strikes: deliveries in a row
--   that vanished with their holders, before this one (h) or by now (r).
-- A delivery whose lease ran out in state h has vanished with its holder, and its message is a suspect.
-- Reads: now. Defines: notes_on(deliveries, ids) -> per id its note; past_of(note, rc, fr) -> table
--   {time (nil: not known), excused, strikes, returned, holder, why} of a message that was received rc times;
--   pasts_of(zset, deliveries, ids, rcs, frs) -> these tables of up to 1000 messages that are ready;
--   write_past(rc, past, state) -> a note; returned(note, rc, fr, how) -> the note of a delivery that is over;
--   keep_pasts(deliveries, notes) stores a flat list of id, note.
local function notes_on(deliveries, ids)
  local notes = {}
  for from = 1, #ids, 1000 do
    -- The side key may be of another type or out of reach: then nothing is known.
    local some = redis.pcall('HMGET', deliveries, unpack(ids, from, math.min(#ids, from + 999)))
    if some.err then return {} end
    for i = 1, #some do notes[from + i - 1] = some[i] end
  end
  return notes
end
local function past_of(note, rc, fr)
  local known, time, rest = string.match(note or '', '^(%d+) (%d+)([^\n]*)')
  local excused, strikes, state, holder = string.match(rest or '', '^ (%d+) (%d+) (%a) ?(.*)$')
  local past = {excused = tonumber(excused or 0), strikes = 1, holder = '', why = string.match(note or '', '\n.*$') or ''}
  if tonumber(known) == rc then
    past.time, past.holder = tonumber(time), holder or ''
    past.returned = state == 'r'
    past.strikes = tonumber(strikes or 0) + (past.returned and 0 or 1)
  elseif rc == 1 then
    past.time, past.excused = fr > 0 and fr or nil, 0
  end
  return past
end
local function pasts_of(zset, deliveries, ids, rcs, frs)
  local notes, ends, pasts = notes_on(deliveries, ids), redis.call('ZMSCORE', zset, unpack(ids)), {}
  for i = 1, #ids do
    local past = past_of(notes[i], rcs[i], frs[i])
    -- A lease of no length had no holder that could vanish.
    if not past.returned and past.time and tonumber(ends[i]) == past.time then past.strikes = past.strikes - 1 end
    pasts[i] = past
  end
  return pasts
end
local function write_past(rc, past, state)
  return string.format('%.0f %.0f %.0f %.0f %s %s%s', rc, past.time or now, past.excused, past.strikes, state,
    past.holder, past.why)
end
-- What becomes of a note when its delivery is returned in order: r by a holder that had begun, and then there is
-- no suspicion any more, or u by one that had not, and then the delivery does not count.
local function returned(note, rc, fr, how)
  local past = past_of(note, rc, fr)
  if how == 'r' then
    past.strikes = 0
  elseif not past.returned then
    -- Earlier strikes stay, but this delivery is none.
    past.excused, past.strikes = past.excused + 1, past.strikes - 1
  end
  return write_past(rc, past, 'r')
end
local function keep_pasts(deliveries, notes)
  -- pcall: what is not needed to deliver must not stand in the way.
  for from = 1, #notes, 4000 do
    redis.pcall('HSET', deliveries, unpack(notes, from, math.min(#notes, from + 3999)))
  end
  if #notes > 0 then redis.pcall('EXPIRE', deliveries, 1209600) end
end
