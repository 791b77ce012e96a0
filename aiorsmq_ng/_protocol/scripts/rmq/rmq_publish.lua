-- Publish to a queue of rmq, for one caller or several; all payloads are appended, in order.
-- KEYS: ready list, memory of the caller's series.
-- ARGV: call number, attempt (see _replay_send.lua), how many callers, payloads.
-- Returns: 1 per caller; to a repeated call the same without another effect, to a late attempt an empty list.
-- Errors: none.
-- Cost: O(payloads).
-- @include replay_send
local ready, memory = KEYS[1], KEYS[2]
-- Read before the first write, so that a key of the wrong type changes nothing.
redis.call('LLEN', ready)
local known = ARGV[2] ~= '1' and recall_send(memory, ARGV[1], ARGV[2])
if known == '' then return {} end
if not known and not remember_send(memory, ARGV[1], ARGV[2], ARGV[1] .. ' 0 0 0') then return {} end
-- unpack() has room for about 7900 values.
for from = 4, known and 0 or #ARGV, 4000 do
  redis.call('LPUSH', ready, unpack(ARGV, from, math.min(#ARGV, from + 3999)))
end
local replies = {}
for i = 1, tonumber(ARGV[3]) do replies[i] = 1 end
return replies
