-- Lease one message from the first queue, in the order given, that has a ready one.
-- KEYS per queue: zset, hash, deliveries. ARGV: vt (ms, -1 = that queue's own).
-- Returns: {number of the queue, its reply as in _lease.lua}; with nothing found the number is 0
--   and the reply holds the soonest time at which one of the queues has a message.
-- Errors: {number of the queue, code word}. Cost: O(queues * log n).
-- @include clock
-- @include lease
local soonest, vt_ms = -1, 0
for at = 1, #KEYS, 3 do
  local number = (at + 2) / 3
  local replies = lease(KEYS[at], KEYS[at + 1], KEYS[at + 2], {1, ARGV[1]})
  if type(replies) == 'string' then return {number, replies} end
  local reply = replies[1]
  if #reply > 2 then return {number, reply} end
  vt_ms = reply[1]
  if reply[2] >= 0 and (soonest < 0 or reply[2] < soonest) then soonest = reply[2] end
end
return {0, {vt_ms, soonest}}
