-- check_fence(ledger, fence) -> a code word if the caller may not use the ledger (any more).
-- still_held(hash, ids, rcs) -> the ids of messages that are still the claimant's, number received by others since, number
--   gone. Every client that receives a message increments its rc. At most 7000 ids.
local function check_fence(ledger, fence)
  local known = redis.call('HGET', ledger, 'fence')
  if not known then return 'ledgerGone' end
  if known ~= fence then return 'fenced' end
end
local function still_held(hash, ids, rcs)
  local fields, held, taken, gone = {}, {}, 0, 0
  if #ids == 0 then return held, taken, gone end
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
  return held, taken, gone
end
