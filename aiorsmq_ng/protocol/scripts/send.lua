-- Store messages. Each part is one caller's send: stored as a whole or refused as a whole.
-- KEYS: zset, hash, then the marker of every part that has a window, last the memory of the caller's
--   series.
-- ARGV: call number, attempt (see _once.lua), wake-up channel, then per part:
--   delay (ms, -1 = the queue's), window (ms in which its marker allows no second copy; 0 = no
--   marker), n, then n times: random id suffix, body.
-- Returns: per part the n ids, or {messageTooLong, bytes, maxsize}; to a repeated call what the first
--   attempt returned, and to a part whose marker is there the id that it was stored under.
-- Errors: queueNotFound, queueCorrupt. Cost: O(messages * log n).
local zset, hash, memory, channel = KEYS[1], KEYS[2], KEYS[#KEYS], ARGV[3]
-- @include queue
-- @include clock
-- @include id

-- Asked before anything is written, so that a key of the wrong type changes nothing.
local present = redis.call('ZCARD', zset)
-- The memory holds all that the reply depends on besides the arguments: the time and the limit. Written
-- and read in one step, because every send pays for it.
local known = redis.call('SET', memory, ARGV[1] .. ' ' .. time[1] .. ' ' .. time[2] .. ' ' .. stored[3],
  'PX', 3600000, 'GET')
local repeated = false
if known then
  local last = tonumber(string.match(known, '^%d+') or -1)
  if last >= tonumber(ARGV[1]) then
    redis.call('SET', memory, known, 'PX', 3600000)
    -- A series that is further on already: this attempt comes late, and nobody waits for its reply.
    if last > tonumber(ARGV[1]) then return {} end
    local s, us, limit = string.match(known, '^%d+ (%d+) (%d+) (.*)$')
    repeated, next_us, maxsize = true, s * 1000000 + us, tonumber(limit)
  end
end

local scores, bodies = {}, {}
local function flush()
  if #scores > 0 then
    redis.call('ZADD', zset, unpack(scores))
    redis.call('HSET', hash, unpack(bodies))
    scores, bodies = {}, {}
  end
end

local replies, stored_now, at, marker = {}, 0, 4, 2
while at <= #ARGV do
  local delay_ms, window, count = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + 2 * count
  at = last + 1
  local reply = {}
  if maxsize >= 0 then
    for i = first + 1, last, 2 do
      if #ARGV[i] > maxsize then
        reply = {'messageTooLong', #ARGV[i], maxsize}
        break
      end
    end
  end
  local refused, copy = #reply > 0, false
  if window ~= '0' then
    marker = marker + 1
    -- pcall: a marker of another type tells nothing, and is replaced.
    copy = not refused and redis.pcall('GET', KEYS[marker])
    if type(copy) ~= 'string' then copy = false end
  end
  if copy then
    reply[1] = copy
    next_us = next_us + 1
  elseif not refused then
    if delay_ms < 0 then delay_ms = queue_delay_ms end
    local score = string.format('%.0f', now + delay_ms)
    for i = first, last, 2 do
      local id = id_prefix() .. ARGV[i]
      reply[#reply + 1] = id
      if not repeated then
        scores[#scores + 1] = score
        scores[#scores + 1] = id
        bodies[#bodies + 1] = id
        bodies[#bodies + 1] = ARGV[i + 1]
        -- unpack() has room for some 7900 values.
        if #scores >= 4000 then flush() end
      end
    end
    if not repeated then
      stored_now = stored_now + count
      if window ~= '0' then redis.call('SET', KEYS[marker], reply[1], 'PX', window) end
    end
  end
  replies[#replies + 1] = reply
end

if stored_now > 0 then
  bodies[#bodies + 1] = 'totalsent'
  bodies[#bodies + 1] = string.format('%.0f', sent + stored_now)
  if #scores > 0 then
    flush()
  else
    redis.call('HSET', hash, unpack(bodies))
  end
  -- A wake-up is a hint: a user who may not publish may still send.
  redis.pcall('PUBLISH', channel, present + stored_now)
end
return replies
