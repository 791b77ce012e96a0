-- Defines: guard(ledger, fence) -> a code word if the caller may not use the ledger (any more).
local function guard(ledger, fence)
  local known = redis.call('HGET', ledger, 'fence')
  if not known then return 'ledgerGone' end
  if known ~= fence then return 'fenced' end
end
-- Which messages of a claim are still the claimant's: everybody who receives one counts its rc up.
-- Reads: hash. Defines: standing(rows) -> ids that are, number received since, number gone;
--   rows: flat list of id, rc, fr.
local function standing(rows)
  local fields, held, taken, gone = {}, {}, 0, 0
  for at = 1, #rows, 3 do fields[#fields + 1] = rows[at] .. ':rc' end
  local stored = redis.call('HMGET', hash, unpack(fields))
  for i = 1, #fields do
    if not stored[i] then
      gone = gone + 1
    elseif stored[i] == rows[3 * i - 1] then
      held[#held + 1] = rows[3 * i - 2]
    else
      taken = taken + 1
    end
  end
  return held, taken, gone
end
