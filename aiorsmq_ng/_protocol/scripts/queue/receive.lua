-- Lease ready messages. Each part is one caller's receive; earlier parts are served first. A message that was received
-- max_receives times already goes to the dead-letter queue instead.
-- KEYS: zset, hash, deliveries, and with max_receives: dead zset, dead hash, dead deliveries, index; last the memory of
--   the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), the caller's name, max_receives (0 = no limit), dead-letter queue's
--   name, its wake-up channel, waiter, its longest pause between two looks (ms), then per part: count, vt (ms, -1 =
--   the queue's), pause after which the waiter looks again (ms; 0 = this caller does not wait).
-- Returns: per part {vt (ms), 0, then per message: id, body, rc, fr}; to a part that got nothing {vt (ms), ms until the
--   next message is visible or -1}, and if it waits the ms until its waiter looks again instead (the waiter is woken if
--   a message comes first). The last value of a part may be {list of id, strikes, excused per message that was delivered
--   before; list of id, body, rc, fr, why per message that was dead-lettered; list of id, headers per message of either
--   kind that has some}. To a repeated call the reply of the first
--   attempt, without the messages that another caller has received since.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include wake_waiters
-- @include schedule_look
-- @include idempotency
-- @include replay_receive
-- @include lease
-- @include remark
local zset, waiter, memory = KEYS[1], ARGV[7], KEYS[#KEYS]
local now, seconds, micros = server_time()
local before = recall(memory, ARGV[1], ARGV[2])
if before or ARGV[2] == '0' then
  local replies = {}
  -- 0 ms: a caller that still wants a message may come back at once.
  for i = 1, (#ARGV - 8) / 3 do replies[i] = {0, 0} end
  local groups, dead_letters, dead_headers = replay_receive(before or '',
    {memory = memory, number = ARGV[1], attempt = ARGV[2], now = now, micros = micros},
    function() return KEYS[1], KEYS[2], KEYS[3] end, function() return KEYS[5], KEYS[6], KEYS[4] end)
  for _, group in ipairs(groups) do
    local reply = {group[2], 0}
    for i = 1, #group[3] do reply[i + 2] = group[3][i] end
    remark(reply, 1, group[4])
    remark(reply, 3, group[5])
    replies[group[1]] = reply
  end
  remark(replies[1], 2, dead_letters[1] or {})
  remark(replies[1], 3, dead_headers[1] or {})
  if not before then forget(memory, ARGV[1], ARGV[2]) end
  return replies
end

local dead, parts, pauses, notes = nil, {}, {}, {}
if ARGV[4] ~= '0' then
  dead = {limit = tonumber(ARGV[4]), source = zset, name = ARGV[5], channel = ARGV[6],
    zset = KEYS[4], hash = KEYS[5], deliveries = KEYS[6], index = KEYS[7], now = now, seconds = seconds, micros = micros}
end
for i = 9, #ARGV, 3 do
  local part = (i - 6) / 3
  parts[2 * part - 1], parts[2 * part], pauses[part] = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
end
local replies = lease({zset, KEYS[2], KEYS[3], ARGV[3]}, parts, now, dead, notes, 1)
if type(replies) == 'string' then
  -- An earlier attempt that is still on its way must not find a queue that was created meanwhile.
  if ARGV[2] ~= '1' then forget(memory, ARGV[1], ARGV[2]) end
  return replies
end
local left, waits = 0, false
for i = 1, #replies do
  if pauses[i] > 0 then
    waits = true
    if #replies[i] < 6 then left = i end
  end
end
if left > 0 then
  local look = schedule_look(zset, waiter, pauses[left], tonumber(ARGV[8]), replies[left][2], now, micros)
  for i = 1, #replies do
    if pauses[i] > 0 and #replies[i] < 6 then replies[i][2] = look end
  end
elseif waits then
  clear_waiter(zset, waiter, now)
end
-- What is left is for other waiters.
if #notes > 0 then wake_waiters(zset, now, micros) end
note_dead_letters(notes, 1, dead)
-- A call that took nothing is remembered only if an earlier attempt may still arrive and take something.
if #notes > 0 then
  remember(memory, ARGV[1], ARGV[2], table.concat(notes, '\n'))
elseif ARGV[2] ~= '1' then
  forget(memory, ARGV[1], ARGV[2])
end
return replies
