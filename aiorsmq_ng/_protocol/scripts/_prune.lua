-- Other clients delete messages and know nothing of the side key with the last deliveries. A script that writes
-- into it looks at more of its entries than it adds, at random, and drops those whose message is gone: so
-- there are never many more of them than of the others.
-- Defines: prune(zset, deliveries, added); prune_after(zset, deliveries, notes) does so for a flat list of id, note
--   that was added; to save commands, a call with less than eight of them does it for one id in eight only, on
--   behalf of eight.
local function prune(zset, deliveries, added)
  -- pcall: what is only there to be looked at must not stand in the way.
  local ids = redis.pcall('HRANDFIELD', deliveries, math.min(1000, 2 * added + 8))
  if ids.err or #ids == 0 then return end
  local places, gone = redis.call('ZMSCORE', zset, unpack(ids)), {}
  for i = 1, #ids do
    if not places[i] then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then redis.pcall('HDEL', deliveries, unpack(gone)) end
end
local function prune_after(zset, deliveries, notes)
  local added = #notes / 2
  for i = 1, added < 8 and #notes or 0, 2 do
    if (string.byte(notes[i], -1) or 0) % 8 == 0 then added = added + 8 end
  end
  if added >= 8 then prune(zset, deliveries, added) end
end
