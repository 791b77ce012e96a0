-- Leases that an earlier attempt of the same call took: noted when taken, taken up again when the call
-- is repeated. A message that anybody has received since, or that is gone, stays with its new fate.
-- Reads: now, number, rouse, remember and attempt (from _once.lua), _past.lua. Defines: note(notes, label, reply, first)
--   appends what a reply holds, from its first message on (a reply's head is vt_ms);
--   note_buried(notes, number, dead) appends what was put aside from queue number, after all that was leased;
--   retake(text, keys_of, dead_of) -> list of {label, vt_ms, rows, marks}, rows: id, body, rc, fr per message of
--   which rc and fr are unchanged, its lease renewed, marks: id, strikes, excused of those delivered before; and
--   a table of what was put aside and still lies there: per queue number id, body, rc, fr, why. A recall makes
--   messages visible instead and returns none of them. dead_of(number): zset... of its dead letters.
local function note(notes, label, reply, first)
  local size = #notes
  notes[size + 1], notes[size + 2], notes[size + 3] = label, reply[1], (#reply - first + 1) / 4
  for at = first, #reply, 4 do
    size = #notes
    notes[size + 1], notes[size + 2] = reply[at], reply[at + 2]
    notes[size + 3] = string.format('%.0f', reply[at + 3])
  end
end
local function note_buried(notes, number, dead)
  for at = 1, dead and #dead.rows or 0, 5 do
    notes[#notes + 1] = 'buried'
    notes[#notes + 1] = number
    notes[#notes + 1] = dead.rows[at]
  end
end
local function retake_buried(words, at, dead_of)
  local buried, bytes = {}, 0
  while words[at] == 'buried' do
    local number, id = tonumber(words[at + 1]), words[at + 2]
    local hash, deliveries = dead_of(number)
    local stored = redis.call('HMGET', hash, id, id .. ':rc', id .. ':fr')
    if stored[1] and stored[2] and stored[3] then
      local rows = buried[number] or {}
      local size, rc, fr = #rows, tonumber(stored[2]), tonumber(stored[3])
      bytes = bytes + #stored[1]
      rows[size + 1], rows[size + 2], rows[size + 3], rows[size + 4] = id, bytes <= 1048576 and stored[1] or '', rc, fr
      rows[size + 5] = string.sub(past_of(notes_on(deliveries, {id})[1], rc, fr).why, 2)
      buried[number] = rows
    end
    at = at + 3
  end
  return buried
end
local function retake_group(zset, hash, deliveries, vt_ms, words, at, count)
  local rows, marks, over, score = {}, {}, {}, string.format('%.0f', attempt > 0 and now + vt_ms or now)
  -- See _spend.lua: a full server takes what follows.
  redis.call('HDEL', hash, '')
  for i = at, at + 3 * count - 3, 3 do
    local id, rc, fr = words[i], words[i + 1], words[i + 2]
    local stored = redis.call('HMGET', hash, id, id .. ':rc', id .. ':fr')
    if stored[1] and stored[2] == rc and stored[3] == fr and redis.call('ZSCORE', zset, id) then
      redis.call('ZADD', zset, score, id)
      local size = #rows
      rows[size + 1], rows[size + 2], rows[size + 3], rows[size + 4] = id, stored[1], tonumber(rc), tonumber(fr)
      local text = rc ~= '1' and notes_on(deliveries, {id})[1]
      if attempt == 0 then
        over[#over + 1] = id
        over[#over + 1] = returned(text, tonumber(rc), tonumber(fr), 'u')
      elseif text then
        local past = past_of(text, tonumber(rc), tonumber(fr))
        size = #marks
        -- This delivery has not vanished.
        marks[size + 1], marks[size + 2], marks[size + 3] = id, math.max(0, past.strikes - 1), past.excused
      end
    end
  end
  if attempt == 0 and #rows > 0 then
    keep_pasts(deliveries, over)
    redis.pcall('PUBLISH', zset .. ':ng:wake', redis.call('ZCARD', zset))
    rouse(zset, now)
    return {}, {}
  end
  return rows, marks
end
local function retake(text, keys_of, dead_of)
  local words, groups, at = {}, {}, 1
  for word in string.gmatch(text .. '\n', '([^\n]*)\n') do words[#words + 1] = word end
  while at <= #words do
    local label, vt_ms, count = tonumber(words[at]), tonumber(words[at + 1]), tonumber(words[at + 2])
    if not (label and vt_ms and count) or count < 0 then break end
    local zset, hash, deliveries = keys_of(label)
    groups[#groups + 1] = {label, vt_ms, retake_group(zset, hash, deliveries, vt_ms, words, at + 3, count)}
    at = at + 3 + 3 * count
  end
  local buried = retake_buried(words, at, dead_of)
  -- From now on earlier attempts come late. What was recalled is nobody's any more.
  if #words > 1 then remember(attempt > 0 and text or '') end
  return groups, buried
end
