-- Acknowledge a claim: delete its messages, as far as they are still the claimant's.
-- KEYS: zset, hash, deliveries, ledger, claim, bodies that were moved.
-- ARGV: fence, number of the claim, how many messages.
-- Returns: runs of messages left to acknowledge; at 0 the claim is done.
-- Errors: fenced, ledgerGone.
-- Cost: O(messages * log n), at most 2000 messages.
-- @include ledger
-- @include lean_lease
-- @include moved
-- @include headers
local zset, hash, deliveries, ledger, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local refused, mode, _, acked = check_fence(ledger, ARGV[1])
if refused then return refused end
if tonumber(acked or 0) >= tonumber(ARGV[2]) then return 0 end
local left, moved = 0, mode == 'move'
-- pcall: a side key of another type, or out of reach, has no headers.
if moved and redis.pcall('HLEN', headers_of(zset)) ~= 0 then
  local parts, ids, count = front_parts(claim, tonumber(ARGV[3])), {}, 0
  for _, part in ipairs(parts) do ids_of(part, ids) end
  remove_headers(zset, with_headers(ids))
  for i = 1, #ids do
    if not is_mark(ids[i]) then count = count + 1 end
  end
  if #parts > 0 then redis.call('ZREMRANGEBYRANK', claim, 0, #parts - 1) end
  left = redis.call('ZCARD', claim)
  if left > 0 then count_moved(zset, claim, -count) end
end
if moved and left == 0 then
  redis.call('UNLINK', claim, KEYS[6], long_bodies(KEYS[6]))
  redis.call('HDEL', zset .. ':ng:moved', claim)
elseif not moved then
  local parts = front_parts(claim, tonumber(ARGV[3]))
  local ids, state, complete = examine_held(zset, hash, parts)
  local held = split_held(ids, state)
  local untouched, fields = is_untouched(zset, hash), held
  if not untouched then
    fields = {}
    for i = 1, #held do
      local id, at = held[i], 4 * i
      fields[at - 3], fields[at - 2], fields[at - 1], fields[at] = id, id .. ':rc', id .. ':fr', id .. ':meta'
    end
    if #held > 0 then redis.pcall('HDEL', deliveries, unpack(held)) end
  end
  remove_headers(zset, with_headers(held))
  -- Faster than id by id; what is left then is removed by its id.
  for i = 1, #complete do redis.call('ZREMRANGEBYSCORE', zset, complete[i], complete[i]) end
  -- unpack() has room for about 7900 values.
  for from = 1, #complete < #parts and #held or 0, 4000 do
    redis.call('ZREM', zset, unpack(held, from, math.min(#held, from + 3999)))
  end
  for from = 1, #fields, 4000 do redis.call('HDEL', hash, unpack(fields, from, math.min(#fields, from + 3999))) end
  for _, part in ipairs(parts) do
    if part.lean then redis.call('ZREM', leases_of(zset), part.fourth) end
  end
  if #parts > 0 then redis.call('ZREMRANGEBYRANK', claim, 0, #parts - 1) end
  left = redis.call('ZCARD', claim)
end
if left == 0 then
  redis.call('HDEL', ledger, 'sealed:' .. ARGV[2])
  redis.call('HSET', ledger, 'acked', ARGV[2])
  if moved then let_expire(ledger) end
end
return left
