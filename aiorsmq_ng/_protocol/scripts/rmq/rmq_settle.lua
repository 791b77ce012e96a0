-- Settle deliveries: remove payloads from an unacked list, and store those that were there elsewhere, if asked.
-- Equal payloads are one and the same to rmq, so a repetition is recognised by its number and not by what it finds.
-- KEYS: unacked list, target list (the unacked list itself for an ack), memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), where to store: '' nowhere, 'last' at the young end of the target,
--   'next' at its old end, so that the first payload of a part is taken next; then per part: n, n payloads.
-- Returns: per part n numbers: 1 settled, 0 it was not in the list.
-- Errors: none.
-- Cost: O(payloads * length of the unacked list); near 1 each if they are settled in the order they were taken in.
-- @include idempotency
local unacked, target, memory, where = KEYS[1], KEYS[2], KEYS[3], ARGV[3]
redis.call('LLEN', target)
-- Not for a first attempt: it cannot have run before, and a late one must not run at all.
local before = recall(memory, ARGV[1], ARGV[2])
local replies, found, at = {}, {}, 4
while at <= #ARGV do
  local count, reply = tonumber(ARGV[at]), {}
  for place = 1, count do
    -- What is taken next goes back last.
    local i = where == 'next' and count + 1 - place or place
    local payload = ARGV[at + i]
    if before then
      reply[i] = tonumber(string.sub(before, at + i - 4, at + i - 4)) or 0
    else
      reply[i] = redis.call('LREM', unacked, where == 'next' and 1 or -1, payload)
      if reply[i] == 1 and where == 'last' then redis.call('LPUSH', target, payload) end
      if reply[i] == 1 and where == 'next' then redis.call('RPUSH', target, payload) end
      found[at + i - 4] = reply[i]
    end
  end
  -- The number before a part takes a place, too, so that a payload's place is that of its argument.
  found[at + count + 1 - 4] = '-'
  replies[#replies + 1] = reply
  at = at + count + 1
end
if not before then remember(memory, ARGV[1], ARGV[2], table.concat(found, '', 1, #ARGV - 4)) end
return replies
