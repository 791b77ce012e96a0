-- Store messages in every subscription of a topic, or without any in the topic's own queue. Each part is
-- one caller's publish: stored everywhere or refused as a whole.
-- KEYS: topic, heard, topics, index, own zset, own hash, per subscription zset and hash, then the marker of
--   every part that has a window, last the memory of the caller's series.
-- ARGV: call number, attempt (as in send.lua), name of the topic, its own queue, wake-up channel of that,
--   version that the caller knows, number of subscriptions, for each of them: queue, wake-up channel;
--   then per part: delay (ms, -1 = each queue's), window (ms; 0 = no marker, else n is 1), n, then n times:
--   random id suffix, body.
-- Returns: per part the n ids, the same in every queue, or {messageTooLong, bytes, maxsize}; with a window,
--   and to a repeated call, as send.lua does.
-- Errors: topicChanged (nothing was stored: ask for the subscriptions and publish again),
--   queueCorrupt and the name of the queue. Cost: O(messages * subscriptions * log n).
local topic, heard, topics, index, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local name, own_queue, version, subscriptions = ARGV[3], ARGV[4], ARGV[6], tonumber(ARGV[7])
local parts_at = 8 + 2 * subscriptions
-- @include clock
-- @include rouse
-- @include id
-- @include number
-- @include topic_changed
local function too_long(first, last, limit)
  if limit < 0 then return nil end
  for i = first + 1, last, 2 do
    if #ARGV[i] > limit then return {'messageTooLong', #ARGV[i], limit} end
  end
end

-- The memory is that of send.lua, with the smallest limit of size.
local call_number = tonumber(ARGV[1])
if ARGV[2] ~= '1' then
  local known = redis.call('GET', memory) or ''
  local last = tonumber(string.match(known, '^(%d+) ') or -1)
  if last > call_number then return {} end
  local s, us, limit, held = string.match(known, '^%d+ (%d+) (%d+) (%S+) ?(.*)$')
  if last == call_number and s then
    if tonumber(ARGV[2]) < 0 then redis.call('SET', memory, known, 'PX', 3600000) end
    local replies, at, hits = {}, parts_at, string.gmatch(held, '%S+')
    next_us, limit = s * 1000000 + us, tonumber(limit)
    while at <= #ARGV do
      local first, upto = at + 3, at + 2 + 2 * tonumber(ARGV[at + 2])
      local reply = too_long(first, upto, limit)
      local hit = not reply and ARGV[at + 1] ~= '0' and hits() or '-'
      if hit ~= '-' then
        reply = {hit, 'duplicate'}
        next_us = next_us + 1
      elseif not reply then
        reply = {}
        for i = first, upto, 2 do reply[#reply + 1] = id_of(ARGV[i]) end
        if ARGV[at + 1] ~= '0' then reply[2] = 'stored' end
      end
      replies[#replies + 1] = reply
      at = upto + 1
    end
    return replies
  end
  redis.call('SET', memory, ARGV[1] .. ' void', 'PX', 3600000)
end
if not version_is(version) then return 'topicChanged' end

-- Where it goes. A queue that another client has deleted is a subscription no more.
local targets, lost, least = {}, {}, -1
local function examine(zset, hash, channel)
  local stored = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize', 'totalsent')
  -- Asked before anything is written, so that a key of the wrong type changes nothing.
  local present = redis.call('ZCARD', zset)
  if not (stored[1] and stored[2] and stored[3]) then return nil, present end
  local delay, maxsize, sent = number(stored[2]), number(stored[3]), number(stored[4], 0)
  if not (delay and maxsize and sent) or delay < 0 or sent % 1 ~= 0 then return false end
  return {zset = zset, hash = hash, channel = channel, present = present, sent = sent,
    delay_ms = math.floor(delay * 1000 + 0.5), maxsize = maxsize}
end
local function add(target)
  targets[#targets + 1] = target
  if target.maxsize >= 0 and (least < 0 or target.maxsize < least) then least = target.maxsize end
end
for i = 1, subscriptions do
  local at = 6 + 2 * i
  local target = examine(KEYS[5 + 2 * i], KEYS[6 + 2 * i], ARGV[at + 1])
  if target == false then return 'queueCorrupt ' .. ARGV[at] end
  if target then add(target) else lost[#lost + 1] = ARGV[at] end
end
local waits, create = #targets == 0, false
if waits then
  local own, present = examine(KEYS[5], KEYS[6], ARGV[5])
  if own == false then return 'queueCorrupt ' .. own_queue end
  create = not own
  add(own or {zset = KEYS[5], hash = KEYS[6], channel = ARGV[5], present = present, sent = 0,
    delay_ms = 0, maxsize = 65536})
end

local outcome = ARGV[1] .. ' ' .. time[1] .. ' ' .. time[2] .. ' ' .. string.format('%.0f', least)
local known = redis.call('SET', memory, outcome, 'PX', 3600000, 'GET')
if known and ARGV[2] == '1' and tonumber(string.match(known, '^(%d+) ') or -1) >= call_number then
  -- A repetition, or a later call of the series, was here before: this attempt comes late.
  redis.call('SET', memory, known, 'PX', 3600000)
  return {}
end

local replies, ids, bodies, delays, at, hits, met = {}, {}, {}, {}, parts_at, {}, false
local marker = 6 + 2 * subscriptions
local lives_in, field = topic, 'incarnation'
-- @include marker
while at <= #ARGV do
  local delay_ms, window, count = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + 2 * count
  at = last + 1
  local reply, copy = too_long(first, last, least), false
  if window ~= '0' then
    marker = marker + 1
    copy = not reply and marked(KEYS[marker])
    if not reply then hits[#hits + 1] = copy or '-' end
  end
  if copy then
    reply, met = {copy, 'duplicate'}, true
    next_us = next_us + 1
  elseif not reply then
    reply = {}
    for i = first, last, 2 do
      local id = id_of(ARGV[i])
      reply[#reply + 1] = id
      ids[#ids + 1], bodies[#bodies + 1], delays[#delays + 1] = id, ARGV[i + 1], delay_ms
    end
    if window ~= '0' then
      mark(KEYS[marker], reply[1], window)
      reply[2] = 'stored'
    end
  end
  replies[#replies + 1] = reply
end
if met then redis.call('SET', memory, outcome .. ' ' .. table.concat(hits, ' '), 'PX', 3600000) end

if create then
  redis.call('SADD', topics, name)
  redis.call('SADD', index, own_queue)
  redis.call('HSET', KEYS[6], 'vt', 30, 'delay', 0, 'maxsize', 65536, 'created', seconds,
    'modified', seconds)
end
local count = #ids
for _, target in ipairs(targets) do
  local delay, score, due = nil, nil, math.huge
  for from = 1, count, 2000 do
    local scores, fields, size = {}, {}, 0
    for i = from, math.min(count, from + 1999) do
      if delays[i] ~= delay then
        delay = delays[i]
        local visible_at = now + (delay < 0 and target.delay_ms or delay)
        score, due = string.format('%.0f', visible_at), math.min(due, visible_at)
      end
      scores[size + 1], scores[size + 2] = score, ids[i]
      fields[size + 1], fields[size + 2] = ids[i], bodies[i]
      size = size + 2
    end
    fields[size + 1], fields[size + 2] = 'totalsent', string.format('%.0f', target.sent + count)
    redis.call('ZADD', target.zset, unpack(scores))
    redis.call('HSET', target.hash, unpack(fields))
  end
  -- A wake-up is a hint: a user who may not publish may still send.
  if count > 0 then
    redis.pcall('PUBLISH', target.channel, target.present + count)
    rouse(target.zset, due)
  end
end

if waits then
  local zset, hash = KEYS[5], KEYS[6]
  -- @include trim
  -- As many as were stored just now, and a thousand more.
  for _ = 0, count, 1000 do
    if trim() then break end
  end
end
-- A subscription that begins later has no copies of its own of these: see topic_adopt.lua.
if next_us > tonumber(redis.call('HGET', topic, 'last') or 0) then
  redis.call('HSET', topic, 'last', string.format('%.0f', next_us))
end
if #lost > 0 then
  for _, queue in ipairs(lost) do
    redis.call('HDEL', topic, 'q:' .. queue)
    redis.call('HDEL', heard, queue)
  end
  redis.call('HINCRBY', topic, 'lost', #lost)
  changed(ARGV[parts_at + 3])
end
return replies
