-- Store messages. Each part is one caller's send: stored as a whole or refused as a whole.
-- KEYS: zset, hash, then the marker of every part that has a window, last the memory of the caller's series.
-- ARGV: call number, attempt (1 = first, negative = a repetition that must write; see _replay_send.lua), wake-up channel,
--   then per part: a text of three numbers: delay (ms, -1 = the queue's), window (ms in which its marker allows no
--   second copy; 0 = no marker, else n is 1), n; then the random suffixes of its n ids in one text; then n bodies. With
--   headers there is a fourth number, h: after the bodies come h texts, one for all bodies or one each ('' = none), and
--   the suffixes of ids with headers end as _headers.lua says.
-- Returns: per part the n ids, or {messageTooLong, bytes, maxsize}, or {headersRefused, error of the server}; with a window
--   {id, 'stored'}, or, if the marker
--   exists, {the id that the first copy was stored under, 'duplicate'}; to a repeated call what the first attempt
--   returned, and to a late attempt an empty list.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include read_queue
-- @include replay_send
-- @include dedup_marker
-- @include wake_waiters
-- @include store_headers
local zset, hash, memory = KEYS[1], KEYS[2], KEYS[#KEYS]
local now, seconds, micros, time = server_time()
-- The numbers before a part. Most parts of a call have the same, so they are parsed once.
local header, delay_ms, window, count, texts
local function open_part(at)
  if ARGV[at] ~= header then
    header = ARGV[at]
    local delay_text, window_text, count_text, texts_text = string.match(header, '^(-?%d+) (%d+) (%d+) ?(%d*)$')
    delay_ms, window, count = tonumber(delay_text), tonumber(window_text), tonumber(count_text)
    texts = tonumber(texts_text) or 0
  end
  return window, count, at + 2 + count + texts
end
local function too_long(at, n, limit)
  for i = at + 2, limit < 0 and 0 or at + 1 + n do
    if #ARGV[i] > limit then return {'messageTooLong', #ARGV[i], limit} end
  end
  return texts > 0 and refused_headers(zset) or nil
end
local function suffix_at(at, i, n)
  return n == 1 and ARGV[at + 1] or string.sub(ARGV[at + 1], 22 * i - 21, 22 * i)
end

if ARGV[2] ~= '1' then
  local known = recall_send(memory, ARGV[1], ARGV[2])
  if known then return known == '' and {} or replay_send(known, 4, #ARGV, open_part, too_long, suffix_at) end
end
local refused, _, queue_delay_ms, maxsize, sent, _, maxsize_text = read_queue(zset, hash)
if refused then return refused end
-- Read before the first write, so that a key of the wrong type changes nothing.
local present = redis.call('ZCARD', zset)
local outcome = ARGV[1] .. ' ' .. time[1] .. ' ' .. time[2] .. ' ' .. maxsize_text
if not remember_send(memory, ARGV[1], ARGV[2], outcome) then return {} end

local scores, bodies, size, due, next_us = {}, {}, 0, math.huge, seconds * 1000000 + micros
local replies, stored_now, at, marker, hits, met, delayed, score = {}, 0, 4, 2, {}, false, nil, nil
local incarnation, headers, longest_ms
while at <= #ARGV do
  local _, _, next_at = open_part(at)
  local reply, copy = too_long(at, count, maxsize), false
  if window > 0 then
    marker = marker + 1
    if not reply then
      if incarnation == nil then incarnation = read_incarnation(hash, 'ng:incarnation') end
      copy = marked(KEYS[marker], incarnation)
      hits[#hits + 1] = copy or '-'
    end
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
      local id = id_of(next_us, suffix_at(at, i, count))
      next_us = next_us + 1
      reply[i] = id
      scores[size + 1], scores[size + 2] = score, id
      bodies[size + 1], bodies[size + 2] = id, ARGV[at + 1 + i]
      size = size + 2
      -- unpack() has room for about 7900 values.
      if size == 4000 then
        redis.call('ZADD', zset, unpack(scores, 1, size))
        redis.call('HSET', hash, unpack(bodies, 1, size))
        size = 0
      end
    end
    for i = 1, texts > 0 and count or 0 do
      local text = ARGV[at + 1 + count + (texts == 1 and 1 or i)]
      headers = headers or {}
      if text ~= '' then headers[#headers + 1], headers[#headers + 2] = reply[i], text end
      longest_ms = math.max(longest_ms or 0, delay_ms < 0 and queue_delay_ms or delay_ms)
    end
    stored_now = stored_now + count
    if window > 0 then
      incarnation = mark(hash, 'ng:incarnation', incarnation, KEYS[marker], reply[1], window)
      reply[2] = 'stored'
    end
  end
  at = next_at
  replies[#replies + 1] = reply
end
if met then redis.call('SET', memory, outcome .. ' ' .. table.concat(hits, ' '), 'PX', 3600000) end

if stored_now > 0 then
  if size > 0 then redis.call('ZADD', zset, unpack(scores, 1, size)) end
  bodies[size + 1], bodies[size + 2] = 'totalsent', string.format('%.0f', sent + stored_now)
  redis.call('HSET', hash, unpack(bodies, 1, size + 2))
  if headers then store_headers(zset, headers, longest_ms) end
  -- A wake-up is a hint: a user without the right to publish may still send.
  redis.pcall('PUBLISH', ARGV[3], present + stored_now)
  wake_waiters(zset, now, micros, due)
end
return replies
