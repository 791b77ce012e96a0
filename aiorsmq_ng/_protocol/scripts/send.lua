-- Store messages. Each part is one caller's send: stored as a whole or refused as a whole.
-- KEYS: zset, hash, then the marker of every part that has a window, last the memory of the caller's
--   series.
-- ARGV: call number, attempt (1 = first, negative = a repetition after which the caller asks how far its
--   connection's last write has got, so that it must write), wake-up channel, then per part:
--   a text of three numbers: delay (ms, -1 = the queue's), window (ms in which its marker allows no
--   second copy; 0 = no marker, else n is 1), n; then the random suffixes of its n ids in one text, and n bodies.
-- Returns: per part the n ids, or {messageTooLong, bytes, maxsize}; with a window {id, 'stored'}, or, if the
--   marker is there, {the id that it was stored under, 'duplicate'}; to a repeated call what the first
--   attempt returned.
-- Errors: queueNotFound, queueCorrupt. Cost: O(messages * log n).
local zset, hash, memory, channel = KEYS[1], KEYS[2], KEYS[#KEYS], ARGV[3]
-- @include clock
-- @include rouse
-- @include id
-- The numbers before a part. Most parts of a call have the same, so they are read once.
local header, delay_ms, window, count
local function open_part(text)
  if text == header then return end
  header = text
  local delay_text, window_text, count_text = string.match(text, '^(-?%d+) (%d+) (%d+)$')
  delay_ms, window, count = tonumber(delay_text), tonumber(window_text), tonumber(count_text)
end
local function too_long(first, last, limit)
  if limit < 0 then return nil end
  for i = first, last do
    if #ARGV[i] > limit then return {'messageTooLong', #ARGV[i], limit} end
  end
end
local function id_at(suffixes, place)
  return id_of(count == 1 and suffixes or string.sub(suffixes, 22 * place - 21, 22 * place))
end

-- The memory: number of the call, then all that its reply depends on besides the arguments: the time, the
-- limit of size and, per part with a window, the id that its marker held ('-' none). 'void': a repetition
-- found that the call had not run; whatever else becomes of it, earlier attempts come late.
local call_number = tonumber(ARGV[1])
if ARGV[2] ~= '1' then
  local known = redis.call('GET', memory) or ''
  local last = tonumber(string.match(known, '^(%d+) ') or -1)
  -- The series is further on: nobody waits for this attempt.
  if last > call_number then return {} end
  local s, us, limit, held = string.match(known, '^%d+ (%d+) (%d+) (%S+) ?(.*)$')
  if last == call_number and s then
    if tonumber(ARGV[2]) < 0 then redis.call('SET', memory, known, 'PX', 3600000) end
    local replies, at, hits = {}, 4, string.gmatch(held, '%S+')
    next_us, limit = s * 1000000 + us, tonumber(limit)
    while at <= #ARGV do
      open_part(ARGV[at])
      local first, upto = at + 2, at + 1 + count
      local reply = too_long(first, upto, limit)
      local hit = not reply and window > 0 and hits() or '-'
      if hit ~= '-' then
        reply = {hit, 'duplicate'}
        next_us = next_us + 1
      elseif not reply then
        reply = {}
        for i = 1, count do reply[i] = id_at(ARGV[at + 1], i) end
        if window > 0 then reply[2] = 'stored' end
      end
      replies[#replies + 1] = reply
      at = upto + 1
    end
    return replies
  end
  redis.call('SET', memory, ARGV[1] .. ' void', 'PX', 3600000)
end

-- @include queue
-- Asked before anything is written, so that a key of the wrong type changes nothing.
local present = redis.call('ZCARD', zset)
local outcome = ARGV[1] .. ' ' .. time[1] .. ' ' .. time[2] .. ' ' .. stored[3]
-- Written and read in one step, because every send pays for it.
local known = redis.call('SET', memory, outcome, 'PX', 3600000, 'GET')
if known and ARGV[2] == '1' and tonumber(string.match(known, '^(%d+) ') or -1) >= call_number then
  -- A repetition, or a later call of the series, was here before: this attempt comes late.
  redis.call('SET', memory, known, 'PX', 3600000)
  return {}
end

local scores, bodies, size, due = {}, {}, 0, math.huge
local lives_in, field = hash, 'ng:incarnation'
-- @include marker

local replies, stored_now, at, marker, hits, met, delayed, score = {}, 0, 4, 2, {}, false, nil, nil
while at <= #ARGV do
  open_part(ARGV[at])
  local suffixes, first, last = ARGV[at + 1], at + 2, at + 1 + count
  local reply, copy = too_long(first, last, maxsize), false
  if window > 0 then
    marker = marker + 1
    copy = not reply and marked(KEYS[marker])
    if not reply then hits[#hits + 1] = copy or '-' end
  end
  if copy then
    reply, met = {copy, 'duplicate'}, true
    next_us = next_us + 1
  elseif not reply then
    reply = {}
    if delay_ms ~= delayed then
      delayed = delay_ms
      local visible_at = now + (delay_ms < 0 and queue_delay_ms or delay_ms)
      score, due = string.format('%.0f', visible_at), math.min(due, visible_at)
    end
    for i = 1, count do
      local id = id_at(suffixes, i)
      reply[i] = id
      scores[size + 1], scores[size + 2] = score, id
      bodies[size + 1], bodies[size + 2] = id, ARGV[first + i - 1]
      size = size + 2
      -- unpack() has room for some 7900 values.
      if size == 4000 then
        redis.call('ZADD', zset, unpack(scores, 1, size))
        redis.call('HSET', hash, unpack(bodies, 1, size))
        size = 0
      end
    end
    stored_now = stored_now + count
    if window > 0 then
      mark(KEYS[marker], reply[1], window)
      reply[2] = 'stored'
    end
  end
  at = last + 1
  replies[#replies + 1] = reply
end
if met then redis.call('SET', memory, outcome .. ' ' .. table.concat(hits, ' '), 'PX', 3600000) end

if stored_now > 0 then
  if size > 0 then redis.call('ZADD', zset, unpack(scores, 1, size)) end
  bodies[size + 1], bodies[size + 2] = 'totalsent', string.format('%.0f', sent + stored_now)
  redis.call('HSET', hash, unpack(bodies, 1, size + 2))
  -- A wake-up is a hint: a user who may not publish may still send.
  redis.pcall('PUBLISH', channel, present + stored_now)
  rouse(zset, due)
end
return replies
