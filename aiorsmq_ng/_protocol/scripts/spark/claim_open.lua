-- Take a ledger over: from now on only the caller may claim and acknowledge with it.
-- KEYS: ledger, group.
-- ARGV: the ledger's id, and 1 if the group names the valid ledger.
-- Returns: the ledger's fields and values, the new fence among them.
-- Errors: ledgerGone, fenced.
-- Cost: O(claims).
local ledger, group = KEYS[1], KEYS[2]
if redis.call('EXISTS', ledger) == 0 then return 'ledgerGone' end
if ARGV[2] == '1' then
  local current = redis.call('GET', group)
  if current and current ~= ARGV[1] then return 'fenced' end
end
redis.call('HINCRBY', ledger, 'fence', 1)
return redis.call('HGETALL', ledger)
