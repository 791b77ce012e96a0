-- Leases that an earlier attempt of the same call took: noted when taken, taken up again when the call
-- is repeated. A message that anybody has received since, or that is gone, stays with its new fate.
-- Reads: now, number, rouse, remember and attempt (from _once.lua). Defines: note(notes, label, reply, first)
--   appends what a reply holds, from its first message on (a reply's head is vt_ms);
--   retake(text, keys_of) -> list of {label, vt_ms, rows}, rows: id, body, rc, fr per message of which
--   rc and fr are unchanged, its lease renewed. A recall makes them visible instead and returns none.
local function note(notes, label, reply, first)
  local size = #notes
  notes[size + 1], notes[size + 2], notes[size + 3] = label, reply[1], (#reply - first + 1) / 4
  for at = first, #reply, 4 do
    size = #notes
    notes[size + 1], notes[size + 2] = reply[at], reply[at + 2]
    notes[size + 3] = string.format('%.0f', reply[at + 3])
  end
end
local function retake_group(zset, hash, vt_ms, words, at, count)
  local rows, score = {}, string.format('%.0f', attempt > 0 and now + vt_ms or now)
  -- See _spend.lua: a full server takes what follows.
  redis.call('HDEL', hash, '')
  for i = at, at + 3 * count - 3, 3 do
    local id, rc, fr = words[i], words[i + 1], words[i + 2]
    local stored = redis.call('HMGET', hash, id, id .. ':rc', id .. ':fr')
    if stored[1] and stored[2] == rc and stored[3] == fr and redis.call('ZSCORE', zset, id) then
      redis.call('ZADD', zset, score, id)
      local size = #rows
      rows[size + 1], rows[size + 2], rows[size + 3], rows[size + 4] = id, stored[1], tonumber(rc), tonumber(fr)
    end
  end
  if attempt == 0 and #rows > 0 then
    redis.pcall('PUBLISH', zset .. ':ng:wake', redis.call('ZCARD', zset))
    rouse(zset, now)
    return {}
  end
  return rows
end
local function retake(text, keys_of)
  local words, groups, at = {}, {}, 1
  for word in string.gmatch(text .. '\n', '([^\n]*)\n') do words[#words + 1] = word end
  while at <= #words do
    local label, vt_ms, count = tonumber(words[at]), tonumber(words[at + 1]), tonumber(words[at + 2])
    if not count then break end
    local zset, hash = keys_of(label)
    groups[#groups + 1] = {label, vt_ms, retake_group(zset, hash, vt_ms, words, at + 3, count)}
    at = at + 3 + 3 * count
  end
  -- From now on earlier attempts come late. What was recalled is nobody's any more.
  if #groups > 0 then remember(attempt > 0 and text or '') end
  return groups
end
