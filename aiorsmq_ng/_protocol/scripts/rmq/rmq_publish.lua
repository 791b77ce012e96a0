-- Publish to a queue of rmq. Each part is one caller's publish; all are appended, in order.
-- KEYS: ready list, memory of the caller's series.
-- ARGV: call number, attempt (see _replay_send.lua), then per part: n, n payloads.
-- Returns: per part 1; to a repeated call the same without another effect, to a late attempt an empty list.
-- Errors: none.
-- Cost: O(payloads).
-- @include replay_send
local ready, memory = KEYS[1], KEYS[2]
-- Read before the first write, so that a key of the wrong type changes nothing.
redis.call('LLEN', ready)
local known = ARGV[2] ~= '1' and recall_send(memory, ARGV[1], ARGV[2])
if known == '' then return {} end
if not known and not remember_send(memory, ARGV[1], ARGV[2], ARGV[1] .. ' 0 0 0') then return {} end
local replies, at = {}, 3
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  -- unpack() has room for about 7900 values.
  for from = at + 1, known and 0 or last, 4000 do
    redis.call('LPUSH', ready, unpack(ARGV, from, math.min(last, from + 3999)))
  end
  replies[#replies + 1] = 1
  at = last + 1
end
return replies
