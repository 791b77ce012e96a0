-- Other clients delete messages and do not know the side key with the delivery notes. A script that adds notes looks at
-- more notes than it adds, at random, and removes those whose message does not exist. So the number of such notes
-- stays near that of the others.
-- prune_notes(zset, deliveries, added, removable) for a number of notes that were added. removable(ids), if it is given, returns
--   those of a list of ids that may be removed.
-- notes_to_prune(notes) -> for how many notes a call that added this flat list prunes, or nil if it does not.
-- prune_notes_after(zset, deliveries, notes) for a flat list of id, note that was added. To save commands, a call with
--   less than eight notes prunes for one id in eight only, on behalf of eight.
local function prune_notes(zset, deliveries, added, removable)
  -- pcall: pruning is not needed to deliver, so a failure here must not fail the script.
  local ids = redis.pcall('HRANDFIELD', deliveries, math.min(1000, 2 * added + 8))
  -- memory:// answers false for a key that does not exist.
  if not ids or ids.err or #ids == 0 then return end
  local scores, gone = redis.call('ZMSCORE', zset, unpack(ids)), {}
  for i = 1, #ids do
    if not scores[i] then gone[#gone + 1] = ids[i] end
  end
  if removable and #gone > 0 then gone = removable(gone) end
  if #gone > 0 then redis.pcall('HDEL', deliveries, unpack(gone)) end
end
local function notes_to_prune(notes)
  local added = #notes / 2
  for i = 1, added < 8 and #notes or 0, 2 do
    -- Not the last character: ids of messages with headers all end alike.
    if (string.byte(notes[i], -3) or 0) % 8 == 0 then added = added + 8 end
  end
  return added >= 8 and added or nil
end
local function prune_notes_after(zset, deliveries, notes)
  local added = notes_to_prune(notes)
  if added then prune_notes(zset, deliveries, added) end
end
