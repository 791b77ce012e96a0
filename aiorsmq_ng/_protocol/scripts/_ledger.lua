-- Defines: guard(ledger, fence) -> a code word if the caller may not use the ledger (any more).
local function guard(ledger, fence)
  local known = redis.call('HGET', ledger, 'fence')
  if not known then return 'ledgerGone' end
  if known ~= fence then return 'fenced' end
end
-- Which messages of a claim are still the claimant's: everybody who receives one counts its rc up.
-- Reads: hash. Defines: standing(ids, rcs) -> ids that are, number received since, number gone, the
--   fields with the rc of all. Asks for at most 7000.
local function standing(ids, rcs)
  local fields, held, taken, gone = {}, {}, 0, 0
  if #ids == 0 then return held, taken, gone, fields end
  for i = 1, #ids do fields[i] = ids[i] .. ':rc' end
  local stored = redis.call('HMGET', hash, unpack(fields))
  for i = 1, #ids do
    if not stored[i] then
      gone = gone + 1
    elseif stored[i] == rcs[i] then
      held[#held + 1] = ids[i]
    else
      taken = taken + 1
    end
  end
  return held, taken, gone, fields
end
