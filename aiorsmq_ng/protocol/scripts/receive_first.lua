-- Lease messages from several queues: all that the first has, then the second, up to a number.
-- KEYS: index, then per queue: zset, hash, deliveries, dead zset, dead hash (without max_receives
--   the last two are not touched); last the memory of the caller's series.
-- ARGV: call number, attempt (see _once.lua), count, waiter, longest pause between two looks of it (ms), pause
--   after which it looks again (ms; 0 = the caller does not wait), then per queue: vt (ms, -1 = the queue's), max_receives (0 = no limit), dead-letter
--   queue's name, its wake-up channel.
-- Returns: {soonest, then per queue that gave something: its number, its reply as in _lease.lua};
--   soonest: ms until one of the queues has a message, -1 if they are empty, 0 if something came; for a caller
--   that waits in how many ms to look again.
--   To a repeated call as in receive.lua.
-- Errors: {number of the queue, code word}. Cost: O(queues * log n + messages * log n).
-- @include clock
-- @include rouse
-- @include promise
-- @include number
-- @include once
-- @include retake
-- @include bury
-- @include lease
local before = recall()
if before or attempt == 0 then
  local result = {0}
  local function keys_of(number) return KEYS[5 * number - 3], KEYS[5 * number - 2] end
  for _, group in ipairs(retake(before or '', keys_of)) do
    if #group[3] > 0 then
      local reply = {group[2], 0}
      for i = 1, #group[3] do reply[i + 2] = group[3][i] end
      result[#result + 1] = group[1]
      result[#result + 1] = reply
    end
  end
  if not before then forget() end
  return result
end
-- A wrong type found halfway would lose what was leased before; look at all keys first.
for number = 1, (#KEYS - 2) / 5 do
  local key = 5 * number - 3
  for i, command in ipairs({'ZCARD', 'HLEN', false, 'ZCARD', 'HLEN'}) do
    if command then
      local reply = redis.pcall(command, KEYS[key + i - 1])
      if type(reply) == 'table' and reply.err then return {number, 'wrongType'} end
    end
  end
end
local count, soonest, result, notes, hints = tonumber(ARGV[3]), -1, {0}, {}, {}
local waiter, cap_ms, pause_ms = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
for number = 1, (#KEYS - 2) / 5 do
  local key, arg, dead = 5 * number - 3, 4 * number + 3, nil
  if ARGV[arg + 1] ~= '0' then
    dead = {limit = tonumber(ARGV[arg + 1]), name = ARGV[arg + 2], channel = ARGV[arg + 3],
      zset = KEYS[key + 3], hash = KEYS[key + 4], index = KEYS[1]}
  end
  local replies = lease(KEYS[key], KEYS[key + 1], KEYS[key + 2], {count, ARGV[arg]}, dead, notes, number)
  if type(replies) == 'string' then
    -- What was leased from the queues before it must reach the caller.
    if #result > 1 then break end
    if again then forget() end
    return {number, replies}
  end
  local reply = replies[1]
  hints[number] = reply[2]
  if #reply > 2 then
    result[#result + 1] = number
    result[#result + 1] = reply
    count = count - (#reply - 2) / 4
    if count == 0 then break end
  elseif reply[2] >= 0 and (soonest < 0 or reply[2] < soonest) then
    soonest = reply[2]
  end
end
if pause_ms > 0 and #result == 1 then
  local look = soonest == 0 and 0 or math.huge
  for number = 1, look > 0 and #hints or 0 do
    look = math.min(look, promise(KEYS[5 * number - 3], waiter, pause_ms, cap_ms, hints[number]))
  end
  soonest = look
end
-- What is left is for others, also in queues that the waiter was called for and did not come to.
for number = 1, #result > 1 and (#KEYS - 2) / 5 or 0 do
  local zset = KEYS[5 * number - 3]
  if pause_ms > 0 then fulfil(zset, waiter) end
  rouse(zset)
end
if #result == 1 then result[1] = soonest end
if #notes > 0 then
  remember(table.concat(notes, '\n'))
elseif again then
  forget()
end
return result
