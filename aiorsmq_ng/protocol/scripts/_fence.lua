-- Compare receipts with what is stored. A receipt is (id, rc, fr); every RSMQ client counts rc up
-- when it receives, so an older receipt shows. rc = '' asks for no fence (RSMQ's own delete).
-- Reads: zset, hash. Defines: standing(receipts) -> per receipt its old score (number) if it holds,
--   'gone' if the message is not there, 'stale' if somebody has received it since.
-- receipts: flat list of id, rc, fr.
local function standing(receipts)
  local result = {}
  for from = 1, #receipts, 3000 do
    local upto = math.min(#receipts, from + 2999)
    local ids, fields = {}, {}
    for at = from, upto, 3 do
      ids[#ids + 1] = receipts[at]
      fields[#fields + 1] = receipts[at] .. ':rc'
      fields[#fields + 1] = receipts[at] .. ':fr'
    end
    local scores = redis.call('ZMSCORE', zset, unpack(ids))
    local stored = redis.call('HMGET', hash, unpack(fields))
    for i = 1, #ids do
      local rc, fr = receipts[from + 3 * i - 2], receipts[from + 3 * i - 1]
      if not scores[i] then
        result[#result + 1] = 'gone'
      elseif rc == '' or (stored[2 * i - 1] == rc and stored[2 * i] == fr) then
        result[#result + 1] = tonumber(scores[i])
      else
        result[#result + 1] = 'stale'
      end
    end
  end
  return result
end
