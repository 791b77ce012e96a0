-- Leases that an earlier attempt of the same call took: noted when taken, taken up again when the call
-- is repeated. A message that anybody has received since, or that is gone, stays with its new fate.
-- Reads: now, number. Defines: note(notes, label, reply, first) appends what a reply holds (from its
--   first message on; a reply's head is vt_ms); retake(text, keys_of) -> list of {label, vt_ms, rows},
--   rows: id, body, rc, fr per message whose rc is unchanged, its lease renewed.
local function note(notes, label, reply, first)
  local size = #notes
  notes[size + 1], notes[size + 2], notes[size + 3] = label, reply[1], (#reply - first + 1) / 4
  for at = first, #reply, 4 do
    size = #notes
    notes[size + 1], notes[size + 2] = reply[at], reply[at + 2]
  end
end
local function retake_group(zset, hash, vt_ms, ids, counts)
  local rows, score = {}, string.format('%.0f', now + vt_ms)
  -- See _spend.lua: a full server takes what follows.
  redis.call('HDEL', hash, '')
  for i = 1, #ids do
    local id = ids[i]
    local stored = redis.call('HMGET', hash, id, id .. ':rc', id .. ':fr')
    if stored[1] and stored[2] == counts[i] and redis.call('ZSCORE', zset, id) then
      redis.call('ZADD', zset, score, id)
      local size = #rows
      rows[size + 1], rows[size + 2] = id, stored[1]
      rows[size + 3], rows[size + 4] = tonumber(counts[i]), number(stored[3], now) or now
    end
  end
  return rows
end
local function retake(text, keys_of)
  local words, groups, at = {}, {}, 1
  for word in string.gmatch(text .. '\n', '([^\n]*)\n') do words[#words + 1] = word end
  while at <= #words do
    local label, vt_ms, count = tonumber(words[at]), tonumber(words[at + 1]), tonumber(words[at + 2])
    local ids, counts = {}, {}
    if not count then break end
    for i = 1, count do
      ids[i], counts[i] = words[at + 1 + 2 * i], words[at + 2 + 2 * i]
    end
    at = at + 3 + 2 * count
    local zset, hash = keys_of(label)
    groups[#groups + 1] = {label, vt_ms, retake_group(zset, hash, vt_ms, ids, counts)}
  end
  return groups
end
