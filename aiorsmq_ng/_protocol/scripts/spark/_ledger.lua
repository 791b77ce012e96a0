-- check_fence(ledger, fence) -> a code word if the caller may not use the ledger (any more), else nil, its mode, the number of
--   the open claim, of the last acknowledged one (text).
-- examine_held(zset, hash, parts) -> the ids of parts of a claim, per id true if the message is still the claimant's, else
--   'taken' (others received it since) or 'gone', and the scores of lean leases that still have all of their messages. Every
--   client that receives a message increments its rc; one that is under a lean lease loses its score. At most 7000 ids.
-- split_held(ids, state) -> the ids that are the claimant's, number taken, number gone; dead letters are neither.
-- let_expire(ledger) gives a ledger of mode move that holds nothing its TTL, and the name of its reader, too.
-- @include runs
local function check_fence(ledger, fence)
  local known = redis.call('HMGET', ledger, 'fence', 'mode', 'open', 'acked')
  if not known[1] then return 'ledgerGone' end
  if known[1] ~= fence then return 'fenced' end
  return nil, known[2], known[3], known[4]
end
local function examine_held(zset, hash, parts)
  local ids, state, complete, fields, places, rcs = {}, {}, {}, {}, {}, {}
  for _, part in ipairs(parts) do
    local from = #ids
    ids_of(part, ids)
    if not part.lean then
      for i = from + 1, #ids do
        fields[#fields + 1], places[#places + 1], rcs[#rcs + 1] = ids[i] .. ':rc', i, part.rc
      end
    elseif redis.call('ZCOUNT', zset, part.fourth, part.fourth) == part.size then
      for i = from + 1, #ids do state[i] = true end
      complete[#complete + 1] = part.fourth
    else
      local scores, lease = redis.call('ZMSCORE', zset, unpack(ids, from + 1)), tonumber(part.fourth)
      for i = 1, #scores do
        state[from + i] = not scores[i] and 'gone' or tonumber(scores[i]) == lease or 'taken'
      end
    end
  end
  local stored = #fields > 0 and redis.call('HMGET', hash, unpack(fields)) or {}
  for n = 1, #fields do
    state[places[n]] = not stored[n] and 'gone' or stored[n] == rcs[n] or 'taken'
  end
  return ids, state, complete
end
local function split_held(ids, state)
  local held, taken, gone = {}, 0, 0
  for i = 1, #ids do
    if state[i] == true then
      held[#held + 1] = ids[i]
    elseif state[i] == 'taken' then
      taken = taken + 1
    elseif not is_mark(ids[i]) then
      gone = gone + 1
    end
  end
  return held, taken, gone
end
local function let_expire(ledger)
  local stored, known = redis.call('HGETALL', ledger), {}
  for i = 1, #stored, 2 do
    known[stored[i]] = stored[i + 1]
    if stored[i] == 'open' or string.sub(stored[i], 1, 7) == 'sealed:' then return end
  end
  redis.call('EXPIRE', ledger, known.ttl)
  if known.group then redis.call('EXPIRE', known.group, known.ttl) end
end
