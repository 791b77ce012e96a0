-- Take over leased messages whose last delivery is some time ago, the oldest first. They become deliveries of the caller:
-- rc grows, so the receipt of the former holder is stale. A message that was received max_receives times already goes to
-- the dead-letter queue instead.
-- KEYS: zset, hash, deliveries, and with max_receives: dead zset, dead hash, dead deliveries, index; last the memory of
--   the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), the caller's name, max_receives (0 = no limit), dead-letter queue's
--   name, its wake-up channel, count, least time since the last delivery (ms), vt (ms, -1 = the queue's), rank to start
--   at, and the third value of the first page's reply (0 = this is the first page).
-- Returns: {vt (ms), next rank or -1 at the end, time of the first page (ms), then per message: id, body, rc, fr}; the
--   last value may be a table as in receive. To a repeated call as receive does.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(4096 + messages * log n).
-- @include clock
-- @include read_queue
-- @include idempotency
-- @include last_delivery
-- @include dead_letter
-- @include received_too_often
-- @include replay_receive
-- @include is_id
-- @include remove_messages
-- @include byte_order
-- @include headers
-- @include remark
local zset, hash, deliveries, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[#KEYS]
local count, idle_ms, vt_ms = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local at, started = tonumber(ARGV[10]), tonumber(ARGV[11])
local refused, queue_vt_ms, _, maxsize, _, received = read_queue(zset, hash)
if refused then return refused end
local now, seconds, micros = server_time()
local before = recall(memory, ARGV[1], ARGV[2])
if before or ARGV[2] == '0' then
  local place, began, notes = string.match(before or '', '^(-?%d+) (%d+)\n(.*)$')
  local reply = {0, tonumber(place) or -1, tonumber(began) or now}
  local groups, dead_letters, dead_headers = replay_receive(notes or '',
    {memory = memory, number = ARGV[1], attempt = ARGV[2], now = now, micros = micros},
    function() return zset, hash, deliveries end, function() return KEYS[5], KEYS[6], KEYS[4] end)
  local marks, headers = {}, {}
  for _, group in ipairs(groups) do
    reply[1], marks, headers = group[2], group[4], group[5]
    for i = 1, #group[3] do reply[#reply + 1] = group[3][i] end
  end
  remark(reply, 1, marks)
  remark(reply, 2, dead_letters[1] or {})
  remark(reply, 3, headers)
  remark(reply, 3, dead_headers[1] or {})
  if not before then forget(memory, ARGV[1], ARGV[2]) end
  return reply
end
if vt_ms < 0 then vt_ms = queue_vt_ms end
local latest = now - idle_ms
-- A message that an earlier page took may come again: it was delivered not for the first time, since then.
local ours_from = started > 0 and started or math.huge
if started == 0 then started = now end
local dead
if ARGV[4] ~= '0' then
  dead = {limit = tonumber(ARGV[4]), source = zset, name = ARGV[5], channel = ARGV[6],
    zset = KEYS[4], hash = KEYS[5], deliveries = KEYS[6], index = KEYS[7], now = now, seconds = seconds, micros = micros}
  refused = check_dead_letters(dead)
  if refused then return refused end
end

at = math.max(at, redis.call('ZCOUNT', zset, '-inf', now))
local range = redis.call('ZRANGE', zset, at, at + 4095, 'WITHSCORES')
local due = {}
for from = 1, #range, 2000 do
  local ids, fields = {}, {}
  for i = from, math.min(#range, from + 1999), 2 do
    ids[#ids + 1] = range[i]
    fields[#fields + 1] = range[i] .. ':rc'
    fields[#fields + 1] = range[i] .. ':fr'
  end
  local values, notes = redis.call('HMGET', hash, unpack(fields)), read_notes(deliveries, ids)
  for i = 1, #ids do
    local rc = whole(values[2 * i - 1], 0)
    local fr = whole(values[2 * i], 0)
    if rc > 0 and is_id(ids[i]) then
      local last = last_delivery(rc, fr, tonumber(range[from + 2 * i - 1]), notes[i], queue_vt_ms, now)
      if last <= latest and (rc == 1 or last < ours_from) then
        due[#due + 1] = {last = last, place = #due, id = ids[i], rc = rc, fr = fr > 0 and fr or last,
          note = notes[i]}
      end
    end
  end
end
table.sort(due, function(a, b)
  if a.last ~= b.last then return a.last < b.last end
  return a.place < b.place
end)

local reply, scores, fields, again, gone, marks = {vt_ms, -1, started}, {}, {}, {}, {}, {}
local taken, seen = 0, 0
-- They go to the end of the leased ones, in this order. So a lease ends a millisecond later where ids would sort
-- otherwise, and all of them end after others that were leased just before, whose ends are spread (_lease.lua).
local ends, before_it = now + vt_ms, ''
local ahead = redis.call('ZCOUNT', zset, '-inf', string.format('%.0f', ends + vt_ms / 10 + 1000))
local last = ahead > 0 and redis.call('ZRANGE', zset, ahead - 1, ahead - 1, 'WITHSCORES')
if last then ends = math.max(ends, math.floor(tonumber(last[2])) + 1) end
while taken < count and seen < #due do
  seen = seen + 1
  local message = due[seen]
  local id, rc = message.id, message.rc + 1
  local body, history = redis.call('HGET', hash, id), parse_note(message.note, message.rc, message.fr)
  if not body then
    -- A phantom: another client left an id without a body.
    gone[#gone + 1] = id
  elseif dead and received_too_often(dead, rc, history) then
    dead_letter(dead, id, body, message.rc, message.fr, maxsize, history)
    gone[#gone + 1] = id
  else
    taken = taken + 1
    local size, fr = #reply, string.format('%.0f', message.fr)
    reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = id, body, rc, message.fr
    if sorts_before(id, before_it) then ends = ends + 1 end
    before_it = id
    scores[#scores + 1] = string.format('%.0f', ends)
    scores[#scores + 1] = id
    size = #fields
    fields[size + 1], fields[size + 2] = id .. ':rc', rc
    fields[size + 3], fields[size + 4] = id .. ':fr', fr
    again[#again + 1] = id
    history.time, history.holder = now, ARGV[3]
    again[#again + 1] = format_note(rc, history, 'h', now)
    if history.strikes + history.excused > 0 then
      size = #marks
      marks[size + 1], marks[size + 2], marks[size + 3] = id, history.strikes, history.excused
    end
  end
end
if #range == 8192 and taken < count then reply[2] = at + 4096 - seen end

if dead then finish_dead_letters(dead) end
for i = 1, #gone do remove_messages(zset, hash, deliveries, {gone[i]}) end
if taken > 0 then
  fields[#fields + 1] = 'totalrecv'
  fields[#fields + 1] = string.format('%.0f', received + taken)
  for from = 1, #scores, 4000 do
    redis.call('ZADD', zset, unpack(scores, from, math.min(#scores, from + 3999)))
  end
  store_notes(deliveries, again)
  for from = 1, #fields, 4000 do
    redis.call('HSET', hash, unpack(fields, from, math.min(#fields, from + 3999)))
  end
end
local dead_letters = dead and dead.rows or {}
if taken > 0 or #dead_letters > 0 then
  local notes = {string.format('%.0f %.0f', reply[2], started)}
  if taken > 0 then note_leases(notes, 1, reply, 4) end
  note_dead_letters(notes, 1, dead)
  remember(memory, ARGV[1], ARGV[2], table.concat(notes, '\n'))
  local ids = {}
  for place = 4, #reply, 4 do ids[#ids + 1] = reply[place] end
  remark(reply, 1, marks)
  remark(reply, 2, dead_letters)
  remark(reply, 3, read_headers(zset, with_headers(ids)))
  remark(reply, 3, dead and dead.headers or {})
elseif ARGV[2] ~= '1' then
  forget(memory, ARGV[1], ARGV[2])
end
prune_notes(zset, deliveries, math.max(taken, 46))
return reply
