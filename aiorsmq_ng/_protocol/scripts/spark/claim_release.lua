-- Return the messages of a claim, as far as they are still the claimant's: ready at once, in the order in which they were
-- sent.
-- KEYS: zset, hash, ledger, claim, deliveries.
-- ARGV: wake-up channel, fence, number of the claim, how many messages, how many bytes of moved bodies.
-- Returns: {messages returned, runs of messages left}; at 0 left the claim is removed.
-- Errors: queueNotFound, queueCorrupt, fenced, ledgerGone.
-- Cost: O(messages * log n), at most 2000 messages; in mode move it ends with the message that reaches the bytes.
-- @include clock
-- @include read_queue
-- @include ledger
-- @include runs
-- @include delivery_notes
-- @include prune_notes
-- @include wake_waiters
local zset, hash, ledger, claim, deliveries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local refused = read_queue(zset, hash) or check_fence(ledger, ARGV[2])
if refused then return refused end
local now, _, micros = server_time()
local moved = redis.call('HGET', ledger, 'mode') == 'move'
local ids, rcs, frs, runs, bodies, notes = first_runs(claim, tonumber(ARGV[4]), moved and tonumber(ARGV[5]))
local held = moved and ids or still_held(hash, ids, rcs)
local scores, fields = {}, {}
for i = 1, #held do
  local id, at = held[i], 6 * i
  -- Their send time, not now: a reader that takes only messages from before it began must find them.
  local sent_ms = math.floor((tonumber(string.sub(id, 1, 10), 36) or 0) / 1000)
  scores[2 * i - 1], scores[2 * i] = string.format('%.0f', math.min(now, sent_ms)), id
  if moved then
    fields[at - 5], fields[at - 4] = id, bodies[i]
    fields[at - 3], fields[at - 2], fields[at - 1], fields[at] = id .. ':rc', rcs[i], id .. ':fr', frs[i]
  end
end
for from = 1, #fields, 3000 do
  redis.call('HSET', hash, unpack(fields, from, math.min(#fields, from + 2999)))
end
if #held > 0 then
  if moved then
    redis.call('ZADD', zset, unpack(scores))
  else
    redis.call('ZADD', zset, 'XX', unpack(scores))
  end
  -- Their holder returns them, so none of them is a suspect.
  local place, over = {}, {}
  if not moved then notes = read_notes(deliveries, held) end
  for i = 1, #ids do place[ids[i]] = i end
  for i = 1, #held do
    local at = place[held[i]]
    over[2 * i - 1] = held[i]
    over[2 * i] = note_of_return(notes[i], tonumber(rcs[at]) or 0, tonumber(frs[at]) or now, 'r', now)
  end
  store_notes(deliveries, over)
  prune_notes_after(zset, deliveries, over)
  redis.pcall('PUBLISH', ARGV[1], redis.call('ZCARD', zset))
  wake_waiters(zset, now, micros, now)
end
if runs > 0 then redis.call('ZREMRANGEBYRANK', claim, 0, runs - 1) end
local left = redis.call('ZCARD', claim)
if left == 0 then
  redis.call('HDEL', ledger, 'sealed:' .. ARGV[3])
  if redis.call('HGET', ledger, 'open') == ARGV[3] then redis.call('HDEL', ledger, 'open', 'bytes') end
end
return {#held, left}
