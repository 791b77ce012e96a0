-- Lease ready messages. Each part is one caller's receive; earlier parts are served first. A message
-- that was received max_receives times already goes to the dead-letter queue instead.
-- KEYS: zset, hash, deliveries, and with max_receives: dead zset, dead hash, index; last the memory of
--   the caller's series.
-- ARGV: call number, attempt (see _once.lua), max_receives (0 = no limit), dead-letter queue's name, its
--   wake-up channel, then per part: count, vt (ms, -1 = the queue's).
-- Returns: the replies of _lease.lua; to a repeated call those of the first attempt, without the
--   messages that somebody else has received since. Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include number
-- @include once
-- @include retake
-- @include bury
-- @include lease
local before = recall()
if before or attempt == 0 then
  local replies = {}
  -- 0 ms: whoever still wants a message may come back at once.
  for i = 1, (#ARGV - 5) / 2 do replies[i] = {0, 0} end
  for _, group in ipairs(retake(before or '', function() return KEYS[1], KEYS[2] end)) do
    local reply = {group[2], 0}
    for i = 1, #group[3] do reply[i + 2] = group[3][i] end
    replies[group[1]] = reply
  end
  if not before then forget() end
  return replies
end

local dead, parts = nil, {}
if ARGV[3] ~= '0' then
  dead = {limit = tonumber(ARGV[3]), name = ARGV[4], channel = ARGV[5],
    zset = KEYS[4], hash = KEYS[5], index = KEYS[6]}
end
for i = 6, #ARGV do parts[i - 5] = ARGV[i] end
local notes = {}
local replies = lease(KEYS[1], KEYS[2], KEYS[3], parts, dead, notes, 1)
if type(replies) == 'string' then
  -- An attempt that is still on its way must find no queue to work on, either.
  if again then forget() end
  return replies
end
-- An empty hand needs no memory, unless an earlier attempt may still arrive and fill it.
if #notes > 0 then
  remember(table.concat(notes, '\n'))
elseif again then
  forget()
end
return replies
