-- When a leased message was delivered last. RSMQ itself keeps only the time of the first delivery
-- (fr). The side key knows later ones made by this library, and counts only if it speaks of this
-- very rc. A later delivery by another client is placed the queue's vt before the end of its lease.
-- Reads: deliveries, now, queue_vt_ms. Defines: notes_on(ids) -> per id what the side key says;
--   last_delivery(rc, fr, score, note) -> epoch ms; fr 0 = not known.
local function notes_on(ids)
  -- The side key may be of another type or out of reach: then nothing is known.
  local notes = redis.pcall('HMGET', deliveries, unpack(ids))
  return notes.err and {} or notes
end
local function last_delivery(rc, fr, score, note)
  local last = math.max(fr, score - queue_vt_ms)
  if rc == 1 and fr > 0 then
    last = fr
  else
    local known_rc, known_ms = string.match(note or '', '^(%d+) (%d+)$')
    if tonumber(known_rc) == rc then last = tonumber(known_ms) end
  end
  return math.min(now, last)
end
