-- Lease ready messages. Each part is one caller's receive; earlier parts are served first. A message
-- that was received max_receives times already goes to the dead-letter queue instead.
-- KEYS: zset, hash, deliveries, and with max_receives: dead zset, dead hash, dead deliveries, index; last the
--   memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), the caller's name, max_receives (0 = no limit), dead-letter queue's
--   name, its wake-up channel, waiter, longest pause between two looks of it (ms), then per part: count, vt (ms,
--   -1 = the queue's), pause after which the waiter looks again (ms; 0 = this caller does not wait).
-- Returns: the replies of _lease.lua; a caller that waits and got nothing gets the ms until it shall look again
--   instead, and the waiter is called if a message comes first; to a repeated call those of the first attempt, without the
--   messages that somebody else has received since. Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include rouse
-- @include promise
-- @include number
-- @include once
-- @include past
-- @include retake
-- @include bury
-- @include lease
local before = recall()
if before or attempt == 0 then
  local replies = {}
  -- 0 ms: whoever still wants a message may come back at once.
  for i = 1, (#ARGV - 8) / 3 do replies[i] = {0, 0} end
  local groups, buried = retake(before or '', function() return KEYS[1], KEYS[2], KEYS[3] end,
    function() return KEYS[5], KEYS[6] end)
  for _, group in ipairs(groups) do
    local reply = {group[2], 0}
    for i = 1, #group[3] do reply[i + 2] = group[3][i] end
    if #group[4] > 0 then reply[#reply + 1] = {group[4], {}} end
    replies[group[1]] = reply
  end
  if buried[1] then
    local first = replies[1]
    if type(first[#first]) ~= 'table' then first[#first + 1] = {{}, {}} end
    first[#first][2] = buried[1]
  end
  if not before then forget() end
  return replies
end

local zset, waiter, dead, parts, pauses = KEYS[1], ARGV[7], nil, {}, {}
if ARGV[4] ~= '0' then
  dead = {limit = tonumber(ARGV[4]), name = ARGV[5], channel = ARGV[6],
    zset = KEYS[4], hash = KEYS[5], deliveries = KEYS[6], index = KEYS[7]}
end
for i = 9, #ARGV, 3 do
  parts[#parts + 1], parts[#parts + 2] = ARGV[i], ARGV[i + 1]
  pauses[#pauses + 1] = tonumber(ARGV[i + 2])
end
local notes = {}
local replies = lease({KEYS[1], KEYS[2], KEYS[3], ARGV[3]}, parts, dead, notes, 1)
if type(replies) == 'string' then
  -- An attempt that is still on its way must find no queue to work on, either.
  if again then forget() end
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
  local look = promise(zset, waiter, pauses[left], tonumber(ARGV[8]), replies[left][2])
  for i = 1, #replies do
    if pauses[i] > 0 and #replies[i] < 6 then replies[i][2] = look end
  end
elseif waits then
  fulfil(zset, waiter)
end
-- What is left is for others.
if #notes > 0 then rouse(zset) end
note_buried(notes, 1, dead)
-- An empty hand needs no memory, unless an earlier attempt may still arrive and fill it.
if #notes > 0 then
  remember(table.concat(notes, '\n'))
elseif again then
  forget()
end
return replies
