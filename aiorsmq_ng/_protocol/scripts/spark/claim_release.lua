-- Return the messages of a claim, as far as they are still the claimant's: ready at once, in the order in which they were
-- sent, and received once more than before the claim.
-- KEYS: zset, hash, deliveries, ledger, claim, bodies that were moved.
-- ARGV: wake-up channel, fence, number of the claim, how many messages, how many bytes of moved bodies.
-- Returns: {messages returned, runs of messages left}; at 0 left the claim is removed.
-- Errors: queueNotFound, queueCorrupt, fenced, ledgerGone, claimGone.
-- Cost: O(messages * log n), at most 2000 messages; in mode move it ends with the message that reaches the bytes.
-- @include clock
-- @include read_queue
-- @include ledger
-- @include lean_lease
-- @include moved
-- @include held_headers
-- @include delivery_notes
-- @include prune_notes
-- @include wake_waiters
local zset, hash, deliveries, ledger, claim, list = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local refused = read_queue(zset, hash)
if refused then return refused end
local fenced, mode, open = check_fence(ledger, ARGV[2])
if fenced then return fenced end
local now, _, micros = server_time()
local moved = mode == 'move'
local parts = front_parts(claim, tonumber(ARGV[4]))
local bodies, notes = {}, {}
-- Take moved messages out of the claim. Of a run that has more bytes than a call may write, the rest stays.
if moved then
  local left, maxsize = tonumber(ARGV[5]), longest_body(hash)
  for i, part in ipairs(parts) do
    local count, bytes = 0, 0
    if left > 0 then
      count, bytes = moved_bodies(list, part, left, maxsize, bodies)
      if count == 0 and i == 1 then return 'claimGone' end
      -- The next call says so.
      if count == 0 then left = 0 end
    end
    parts[i], left = nil, left - bytes
    if count > 0 then
      redis.call('ZREM', claim, part.run)
      parts[i], notes[#bodies] = part_of(part.run, part.first, part.first, part.first + count), part.note
    end
    if count > 0 and count < part.count then
      redis.call('ZADD', claim, part.first + count, part_of(part.run, part.first, part.first + count, math.huge).run)
    end
  end
elseif #parts > 0 then
  redis.call('ZREMRANGEBYRANK', claim, 0, #parts - 1)
end

local ids, state, scores, fields, held, over = {}, {}, {}, {}, {}, {}
if moved then
  for _, part in ipairs(parts) do ids_of(part, ids) end
else
  ids, state = examine_held(zset, hash, parts)
  notes = read_notes(deliveries, ids)
end
local place = 0
for _, part in ipairs(parts) do
  for i = place + 1, place + part.count do
    if state[i] == true or moved and not is_mark(ids[i]) then
      local id, size = ids[i], #fields
      held[#held + 1] = id
      -- Their send time, not now: a reader that takes only messages from before it began must find them.
      local sent_ms = math.floor((tonumber(string.sub(id, 1, 10), 36) or 0) / 1000)
      scores[#scores + 1] = string.format('%.0f', math.min(now, sent_ms))
      scores[#scores + 1] = id
      if moved or part.lean then
        fields[size + 1], fields[size + 2], fields[size + 3], fields[size + 4] = id .. ':rc', part.rc, id .. ':fr', part.fr
      end
      if moved then fields[size + 5], fields[size + 6] = id, bodies[i] end
      -- Their holder returns them, so none of them is a suspect.
      over[#over + 1] = id
      over[#over + 1] = note_of_return(notes[i], tonumber(part.rc) or 0, tonumber(part.fr) or now, 'r', now)
    end
  end
  place = place + part.count
  if part.lean then redis.call('ZREM', leases_of(zset), part.fourth) end
end
for from = 1, #fields, 3000 do
  redis.call('HSET', hash, unpack(fields, from, math.min(#fields, from + 2999)))
end
if #held > 0 then
  if moved then
    count_moved(zset, claim, -#held)
    free_headers(zset, with_headers(held))
  end
  for from = 1, #scores, 4000 do
    redis.call('ZADD', zset, unpack(scores, from, math.min(#scores, from + 3999)))
  end
  store_notes(deliveries, over)
  prune_notes_after(zset, deliveries, over)
  redis.pcall('PUBLISH', ARGV[1], redis.call('ZCARD', zset))
  wake_waiters(zset, now, micros, now)
end
local left = redis.call('ZCARD', claim)
if left == 0 then
  redis.call('HDEL', ledger, 'sealed:' .. ARGV[3])
  if open == ARGV[3] then redis.call('HDEL', ledger, 'open', 'bytes') end
  if moved then
    redis.call('UNLINK', list, long_bodies(list))
    let_expire(ledger)
  end
end
return {#held, left}
