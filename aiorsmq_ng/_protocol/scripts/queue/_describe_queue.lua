-- describe(zset, hash, now) -> the snapshot of a queue: {vt, delay, maxsize, totalrecv, totalsent, created, modified (as
--   stored, '' if absent), messages, hidden, leased, 1 if that is exact or 0, age of the first ready message (ms) or
--   -1}; or queueNotFound.
-- Leased and delayed messages differ only in having been received. So the script reads rc of every hidden message, up
-- to 4096 of them (about 1 ms). Beyond that the number of received messages, which follows from the size of the hash
-- (body, rc and fr per message), is an upper bound of the leased ones. Lean leases are counted as such.
-- @include lean_lease
local function describe(zset, hash, now)
  local fields = redis.call('HMGET', hash,
    'vt', 'delay', 'maxsize', 'totalrecv', 'totalsent', 'created', 'modified')
  if not (fields[1] and fields[2] and fields[3]) then
    return 'queueNotFound'
  end
  local msgs = redis.call('ZCARD', zset)
  local ready = redis.call('ZCOUNT', zset, '-inf', now)
  local hidden = msgs - ready
  local leased, exact = 0, 1
  if hidden > 4096 then
    local attributes = 0
    for i = 1, 7 do
      if fields[i] then attributes = attributes + 1 end
    end
    local received = math.floor((redis.call('HLEN', hash) - attributes - msgs) / 2)
    leased, exact = math.max(0, math.min(hidden, received)), 0
  elseif hidden > 0 then
    local ids = redis.call('ZRANGE', zset, ready, -1)
    for i = 1, #ids do ids[i] = ids[i] .. ':rc' end
    local counts = redis.call('HMGET', hash, unpack(ids))
    for i = 1, #counts do
      if counts[i] then leased = leased + 1 end
    end
  end
  if hidden > 0 then leased = math.min(hidden, leased + count_lean(zset, now)) end
  local head = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  local head_age_ms = -1
  if head[2] and tonumber(head[2]) <= now then
    head_age_ms = math.floor(now - tonumber(head[2]))
  end
  for i = 1, 7 do fields[i] = fields[i] or '' end
  fields[8], fields[9], fields[10], fields[11], fields[12] = msgs, hidden, leased, exact, head_age_ms
  return fields
end
