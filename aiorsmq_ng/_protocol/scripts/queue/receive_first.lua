-- Lease messages from several queues: all that the first has, then the second, up to a number.
-- KEYS: index, then per queue: zset, hash, deliveries, dead zset, dead hash, dead deliveries (without max_receives the last
--   three are not touched); last the memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), the caller's name, count, waiter, its longest pause between two looks
--   (ms), pause after which it looks again (ms; 0 = the caller does not wait), then per queue: vt (ms, -1 = the
--   queue's), max_receives (0 = no limit), dead-letter queue's name, its wake-up channel.
-- Returns: {soonest, then per queue that gave or dead-lettered something: its number, its reply as a part of receive}.
--   soonest: ms until one of the queues has a message, -1 if all are empty, 0 if something came; for a caller that
--   waits the ms until its waiter looks again. To a repeated call as receive does.
-- Errors: {number of the queue, code word}: queueNotFound, queueCorrupt, wrongType.
-- Cost: O(queues * log n + messages * log n).
-- @include clock
-- @include wake_waiters
-- @include schedule_look
-- @include idempotency
-- @include replay_receive
-- @include lease
-- @include remark
local memory, queues = KEYS[#KEYS], (#KEYS - 2) / 6
local now, seconds, micros = server_time()
local before = recall(memory, ARGV[1], ARGV[2])
if before or ARGV[2] == '0' then
  local result = {0}
  local function keys_of(number) return KEYS[6 * number - 4], KEYS[6 * number - 3], KEYS[6 * number - 2] end
  local function dead_of(number) return KEYS[6 * number], KEYS[6 * number + 1], KEYS[6 * number - 1] end
  local groups, dead_letters, dead_headers = replay_receive(before or '',
    {memory = memory, number = ARGV[1], attempt = ARGV[2], now = now, micros = micros}, keys_of, dead_of)
  for _, group in ipairs(groups) do
    if #group[3] > 0 then
      local reply = {group[2], 0}
      for i = 1, #group[3] do reply[i + 2] = group[3][i] end
      remark(reply, 1, group[4])
      remark(reply, 3, group[5])
      result[#result + 1] = group[1]
      result[#result + 1] = reply
    end
  end
  for number, rows in pairs(dead_letters) do
    result[#result + 1] = number
    result[#result + 1] = {0, 0, {{}, rows, dead_headers[number]}}
  end
  if not before then forget(memory, ARGV[1], ARGV[2]) end
  return result
end
-- A wrong type found halfway would lose what was leased before, so all keys are checked first.
for number = 1, queues do
  local key = 6 * number - 4
  for i, command in ipairs({'ZCARD', 'HLEN', false, 'ZCARD', 'HLEN'}) do
    if command then
      local reply = redis.pcall(command, KEYS[key + i - 1])
      if type(reply) == 'table' and reply.err then return {number, 'wrongType'} end
    end
  end
end
local count, soonest, result, notes, hints = tonumber(ARGV[4]), -1, {0}, {}, {}
local waiter, cap_ms, pause_ms, taken, deads = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), 0, {}
for number = 1, queues do
  local key, arg, dead = 6 * number - 4, 4 * number + 4, nil
  if ARGV[arg + 1] ~= '0' then
    dead = {limit = tonumber(ARGV[arg + 1]), source = KEYS[key], name = ARGV[arg + 2], channel = ARGV[arg + 3], zset = KEYS[key + 3],
      hash = KEYS[key + 4], deliveries = KEYS[key + 5], index = KEYS[1], now = now, seconds = seconds, micros = micros}
    deads[number] = dead
  end
  local replies = lease({KEYS[key], KEYS[key + 1], KEYS[key + 2], ARGV[3]}, {count - taken, ARGV[arg]}, now, dead,
    notes, number, taken > 0)
  if type(replies) == 'string' then
    -- What was leased from the queues before it must reach the caller.
    if #result > 1 then
      deads[number] = nil
      break
    end
    if ARGV[2] ~= '1' then forget(memory, ARGV[1], ARGV[2]) end
    return {number, replies}
  end
  local reply = replies[1]
  hints[number] = reply[2]
  if #reply > 2 then
    result[#result + 1] = number
    result[#result + 1] = reply
    local rows = math.floor((#reply - 2) / 4)
    taken = taken + rows
    local marks = #reply % 4 == 3 and reply[#reply][1]
    -- A suspect is alone, also among the queues.
    if taken == count or (rows == 1 and marks and marks[2] and marks[2] > 0) then break end
    if rows == 0 and reply[2] >= 0 and (soonest < 0 or reply[2] < soonest) then soonest = reply[2] end
  elseif reply[2] >= 0 and (soonest < 0 or reply[2] < soonest) then
    soonest = reply[2]
  end
end
if pause_ms > 0 and taken == 0 then
  local look = soonest == 0 and 0 or math.huge
  for number = 1, look > 0 and #hints or 0 do
    look = math.min(look, schedule_look(KEYS[6 * number - 4], waiter, pause_ms, cap_ms, hints[number], now, micros))
  end
  soonest = look
end
-- What is left is for other waiters, also in queues that this waiter was woken for and did not come to.
for number = 1, taken > 0 and queues or 0 do
  local zset = KEYS[6 * number - 4]
  if pause_ms > 0 then clear_waiter(zset, waiter, now) end
  wake_waiters(zset, now, micros)
end
if taken == 0 then result[1] = soonest end
for number = 1, queues do note_dead_letters(notes, number, deads[number]) end
if #notes > 0 then
  remember(memory, ARGV[1], ARGV[2], table.concat(notes, '\n'))
elseif ARGV[2] ~= '1' then
  forget(memory, ARGV[1], ARGV[2])
end
return result
