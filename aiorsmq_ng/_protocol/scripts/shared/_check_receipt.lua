-- The fence: a receipt is valid until the message is received again. A receipt is (id, rc, fr). Every RSMQ
-- client increments rc when it receives, so a receipt with another rc is stale. fr is compared, too, because an id
-- can be deleted and stored again. rc = '' asks for no fence (RSMQ's own delete).
-- check_receipts(zset, hash, values, places) -> per receipt its present score (text) if it is valid, 'gone' if the
--   message does not exist or the id is none, 'stale' if it was received since; and the names of the fields compared,
--   two per receipt. values[place] is the id of a receipt, and its rc and fr follow.
-- @include is_id
local function check_receipts(zset, hash, values, places)
  local result, names, count = {}, {}, #places
  for from = 1, count, 1000 do
    local upto, ids = math.min(count, from + 999), {}
    for i = from, upto do
      local id = values[places[i]]
      ids[i - from + 1] = id
      names[2 * i - 1], names[2 * i] = id .. ':rc', id .. ':fr'
    end
    local scores = redis.call('ZMSCORE', zset, unpack(ids))
    local stored = redis.call('HMGET', hash, unpack(names, 2 * from - 1, 2 * upto))
    for i = 1, #ids do
      local at = places[from + i - 1]
      local rc, fr = values[at + 1], values[at + 2]
      if not scores[i] or not is_id(ids[i]) then
        result[from + i - 1] = 'gone'
      elseif rc == '' or (stored[2 * i - 1] == rc and stored[2 * i] == fr) then
        result[from + i - 1] = scores[i]
      else
        result[from + i - 1] = 'stale'
      end
    end
  end
  return result, names
end
