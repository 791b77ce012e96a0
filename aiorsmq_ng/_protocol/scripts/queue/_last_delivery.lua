-- last_delivery(rc, fr, score, note, vt_ms, now) -> when a leased message was delivered last (epoch ms); fr 0 = not known.
-- RSMQ stores the time of the first delivery only (fr). The note knows later ones made by this library, and is valid
-- only for its own rc. A later delivery by another client is estimated: the queue's vt before the end of its lease.
-- @include delivery_notes
local function last_delivery(rc, fr, score, note, vt_ms, now)
  return math.min(now, parse_note(note, rc, fr).time or math.max(fr, score - vt_ms))
end
