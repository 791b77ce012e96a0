-- When a leased message was delivered last. RSMQ itself keeps only the time of the first delivery
-- (fr). The side key knows later ones made by this library, and counts only if it speaks of this
-- very rc. A later delivery by another client is placed the queue's vt before the end of its lease.
-- Reads: now, queue_vt_ms, past_of (from _past.lua). Defines: last_delivery(rc, fr, score, note) -> epoch ms;
--   fr 0 = not known.
local function last_delivery(rc, fr, score, note)
  local last = math.max(fr, score - queue_vt_ms)
  if rc == 1 and fr > 0 then
    last = fr
  else
    last = past_of(note, rc, fr).time or last
  end
  return math.min(now, last)
end
