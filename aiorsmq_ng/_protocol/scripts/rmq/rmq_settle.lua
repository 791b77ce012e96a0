-- Settle deliveries: remove payloads from an unacked list, and store those that were there elsewhere, if asked.
-- Equal payloads are one and the same to rmq, so a repetition is recognised by its number and not by what it finds.
-- KEYS: unacked list, target list (the unacked list itself for an ack), memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), where to store: '' nowhere, 'last' at the young end of the target,
--   'next' at its old end, so that the first payload is taken next; then per part: n, n payloads.
-- Returns: per part n numbers: 1 settled, 0 it was not in the list.
-- Errors: none.
-- Cost: O(payloads * length of the unacked list); near 1 each if they are settled in the order they were taken in.
-- @include idempotency
local unacked, target, memory, where = KEYS[1], KEYS[2], KEYS[3], ARGV[3]
redis.call('LLEN', target)
local before = recall(memory, ARGV[1], ARGV[2])
local replies, part_of, places, found, at = {}, {}, {}, {}, 4
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  replies[#replies + 1] = {}
  for place = at + 1, last do
    places[#places + 1], part_of[#places + 1] = place, #replies
  end
  at = last + 1
end
local first, last, step = 1, #places, 1
-- What is taken next goes back last.
if where == 'next' then first, last, step = #places, 1, -1 end
for n = first, last, step do
  local payload, done = ARGV[places[n]], nil
  if before then
    done = tonumber(string.sub(before, n, n)) or 0
  else
    done = redis.call('LREM', unacked, -step, payload)
    if done == 1 and where == 'last' then redis.call('LPUSH', target, payload) end
    if done == 1 and where == 'next' then redis.call('RPUSH', target, payload) end
  end
  found[n] = done
end
for n = 1, #places do
  local reply = replies[part_of[n]]
  reply[#reply + 1] = found[n]
end
if not before then remember(memory, ARGV[1], ARGV[2], table.concat(found)) end
return replies
