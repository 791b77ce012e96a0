-- Store messages in every subscription of a topic, or without any in the topic's own queue. Each part is one caller's
-- publish: stored everywhere or refused as a whole.
-- KEYS: topic, heard, topics, index, own zset, own hash, per subscription zset and hash, then the marker of every part that
--   has a window, last the memory of the caller's series.
-- ARGV: call number, attempt (as in send), name of the topic, its own queue, wake-up channel of that, version that the
--   caller knows, number of subscriptions, for each of them: queue, wake-up channel; then per part: delay (ms, -1 = each
--   queue's), window (ms; 0 = no marker, else n is 1), n, then n times: random id suffix, body. With headers n is a text of
--   two numbers, n and h, and h texts come last, as in send.
-- Returns: per part the n ids, the same in every queue, or {messageTooLong, bytes, smallest maxsize}, or
--   {headersRefused, error of the server}; with a window, and
--   to a repeated call, as send does.
-- Errors: topicChanged (nothing was stored: the caller reads the subscriptions and publishes again), queueCorrupt and the
--   name of the queue.
-- Cost: O(messages * subscriptions * log n).
-- @include clock
-- @include number
-- @include replay_send
-- @include dedup_marker
-- @include topic_version
-- @include trim_backlog
-- @include wake_waiters
-- @include store_headers
local topic, heard, topics, index, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local name, own_queue, subscriptions = ARGV[3], ARGV[4], tonumber(ARGV[7])
local parts_at = 8 + 2 * subscriptions
local now, seconds, micros, time = server_time()
-- Queues that get the messages: those of the subscriptions, or the topic's own.
local targets, texts = {}, 0
local function open_part(at)
  local count, text = tonumber(ARGV[at + 2]), nil
  texts = 0
  if not count then
    count, text = string.match(ARGV[at + 2], '^(%d+) (%d+)$')
    count, texts = tonumber(count), tonumber(text)
  end
  return tonumber(ARGV[at + 1]), count, at + 3 + 2 * count + texts
end
local function too_long(at, count, limit)
  for i = at + 4, limit < 0 and 0 or at + 2 + 2 * count, 2 do
    if #ARGV[i] > limit then return {'messageTooLong', #ARGV[i], limit} end
  end
  for i = 1, texts > 0 and #targets or 0 do
    local refused = refused_headers(targets[i].zset)
    if refused then return refused end
  end
end
local function suffix_at(at, i) return ARGV[at + 1 + 2 * i] end

if ARGV[2] ~= '1' then
  local known = recall_send(memory, ARGV[1], ARGV[2])
  if known == '' then return {} end
  if known then
    for i = math.min(1, subscriptions), subscriptions do targets[#targets + 1] = {zset = KEYS[5 + 2 * i]} end
    return replay_send(known, parts_at, #ARGV, open_part, too_long, suffix_at)
  end
end
if not version_is(topic, ARGV[6]) then return 'topicChanged' end

-- A queue that another client has deleted is no subscription any more.
local lost, least = {}, -1
local function read_target(zset, hash, channel)
  local stored = redis.call('HMGET', hash, 'vt', 'delay', 'maxsize', 'totalsent')
  -- Read before the first write, so that a key of the wrong type changes nothing.
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
  local target = read_target(KEYS[5 + 2 * i], KEYS[6 + 2 * i], ARGV[at + 1])
  if target == false then return 'queueCorrupt ' .. ARGV[at] end
  if target then add(target) else lost[#lost + 1] = ARGV[at] end
end
local waits, create = #targets == 0, false
if waits then
  local own, present = read_target(KEYS[5], KEYS[6], ARGV[5])
  if own == false then return 'queueCorrupt ' .. own_queue end
  create = not own
  add(own or {zset = KEYS[5], hash = KEYS[6], channel = ARGV[5], present = present, sent = 0,
    delay_ms = 0, maxsize = 65536})
end

local outcome = ARGV[1] .. ' ' .. time[1] .. ' ' .. time[2] .. ' ' .. string.format('%.0f', least)
if not remember_send(memory, ARGV[1], ARGV[2], outcome) then return {} end

local replies, ids, bodies, delays, at, hits, met = {}, {}, {}, {}, parts_at, {}, false
local headers, longest_ms = {}, 0
local marker, next_us, incarnation = 6 + 2 * subscriptions, seconds * 1000000 + micros, nil
while at <= #ARGV do
  local delay_ms, window, count, next_at = tonumber(ARGV[at]), open_part(at)
  local reply, copy = too_long(at, count, least), false
  if window > 0 then
    marker = marker + 1
    if not reply then
      if incarnation == nil then incarnation = read_incarnation(topic, 'incarnation') end
      copy = marked(KEYS[marker], incarnation)
      hits[#hits + 1] = copy or '-'
    end
  end
  if copy then
    reply, met = {copy, 'duplicate'}, true
    next_us = next_us + 1
  elseif not reply then
    reply = {}
    if texts > 0 then longest_ms = math.max(longest_ms, delay_ms) end
    for i = 1, count do
      local id, size = id_of(next_us, ARGV[at + 1 + 2 * i]), #ids + 1
      next_us = next_us + 1
      reply[i] = id
      ids[size], bodies[size], delays[size] = id, ARGV[at + 2 + 2 * i], delay_ms
      local text = texts > 0 and ARGV[at + 2 + 2 * count + (texts == 1 and 1 or i)] or ''
      if text ~= '' then headers[#headers + 1], headers[#headers + 2] = id, text end
    end
    if window > 0 then
      incarnation = mark(topic, 'incarnation', incarnation, KEYS[marker], reply[1], window)
      reply[2] = 'stored'
    end
  end
  replies[#replies + 1] = reply
  at = next_at
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
  store_headers(target.zset, headers, math.max(longest_ms, target.delay_ms))
  -- A wake-up is a hint: a user without the right to publish may still send.
  if count > 0 then
    redis.pcall('PUBLISH', target.channel, target.present + count)
    wake_waiters(target.zset, now, micros, due)
  end
end

if waits then
  -- As many as were stored just now, and a thousand more.
  for _ = 0, count, 1000 do
    if trim_backlog(topic, KEYS[5], KEYS[6], now) then break end
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
  renew_version(topic, seconds, micros, ARGV[parts_at + 3])
end
return replies
