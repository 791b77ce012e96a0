-- Make time pass for the messages of a queue, for tests: each becomes visible that much earlier, and its last delivery
-- was that much earlier. All move alike, ready ones too, so the order of delivery stays. The time of the first delivery
-- (fr) stays, because it is part of the receipt.
-- KEYS: zset, hash, deliveries.
-- ARGV: wake-up channel, time (ms), then the ids of messages whose visibility does not move.
-- Returns: number of messages that became visible by it.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(n * log n) in one step; not for production.
-- @include clock
-- @include read_queue
-- @include delivery_notes
-- @include wake_waiters
local zset, hash, deliveries, channel, by_ms = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
-- The note of a delivery that was by_ms earlier, or nil if the time of the last delivery is not known.
local function earlier(note, rc, fr)
  local history = parse_note(note, rc, fr)
  if not history.time then return nil end
  history.time = math.max(0, history.time - by_ms)
  -- A note of a delivery that is held counts the strikes before it.
  if not history.returned then history.strikes = history.strikes - 1 end
  return format_note(rc, history, history.returned and 'r' or 'h')
end
local refused = read_queue(zset, hash)
if refused then return refused end
local now, _, micros = server_time()
local stays = {}
for i = 3, #ARGV do stays[ARGV[i]] = true end
local range = redis.call('ZRANGE', zset, 0, -1, 'WITHSCORES')
local changes, visible = {}, 0
for i = 1, #range, 2 do
  local score = tonumber(range[i + 1])
  if not stays[range[i]] then
    changes[#changes + 1] = string.format('%.17g', score - by_ms)
    changes[#changes + 1] = range[i]
    if score > now and score - by_ms <= now then visible = visible + 1 end
  end
end
for from = 1, #changes, 4000 do
  redis.call('ZADD', zset, unpack(changes, from, math.min(#changes, from + 3999)))
end
for from = 1, #range, 2000 do
  local ids, fields, shifted = {}, {}, {}
  for i = from, math.min(#range, from + 1999), 2 do
    local n = #ids + 1
    ids[n], fields[2 * n - 1], fields[2 * n] = range[i], range[i] .. ':rc', range[i] .. ':fr'
  end
  local counts, notes = redis.call('HMGET', hash, unpack(fields)), read_notes(deliveries, ids)
  for i = 1, #ids do
    local rc = whole(counts[2 * i - 1], 0)
    local note = rc > 0 and earlier(notes[i], rc, whole(counts[2 * i], 0))
    if note then
      shifted[#shifted + 1] = ids[i]
      shifted[#shifted + 1] = note
    end
  end
  store_notes(deliveries, shifted)
end
-- Also if nothing is visible yet: waiters know when the next message was due, and that changed.
if #changes > 0 then
  redis.call('PUBLISH', channel, #range / 2)
  wake_waiters(zset, now, micros)
end
return visible
