-- Change when messages become visible, fenced by their receipts or not.
-- KEYS: zset, hash, deliveries, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), wake-up channel, then per part: id, rc, fr (rc '' = no fence), vt
--   (ms), how ('' = it stays with its holder; 'r' = its holder returns it; 'u' = its holder returns it before work on it
--   began).
-- Returns: per part 1 changed, 0 gone, -1 received by another caller since. A repeated call runs again, because the
--   result is the same; a late attempt changes nothing and returns an empty list.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n).
-- @include clock
-- @include read_queue
-- @include check_receipt
-- @include delivery_notes
-- @include prune_notes
-- @include keep_headers
-- @include wake_waiters
-- @include allow_writes_when_full
-- @include side_key
local zset, hash, deliveries, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refused = read_queue(zset, hash)
if refused then return refused end
local now, _, micros = server_time()
allow_writes_when_full(hash)
-- Written and read in one command, because every call pays for it.
local attempt = ARGV[1] .. ' ' .. ARGV[2] .. ' '
local known = call_side('SET', memory, attempt, 'PX', 600000, 'GET')
-- Without GET a key of another type is replaced.
if known == nil then redis.call('SET', memory, attempt, 'PX', 600000) end
if known then
  local last, seen = string.match(known, '^(%d+) (%d+)')
  last = tonumber(last or -1)
  if last > tonumber(ARGV[1]) or (last == tonumber(ARGV[1]) and tonumber(seen) >= tonumber(ARGV[2])) then
    redis.call('SET', memory, known, 'PX', 600000)
    return {}
  end
end
local places = {}
for at = 4, #ARGV, 5 do places[#places + 1] = at end
local held, replies, changes, sooner, over = check_receipts(zset, hash, ARGV, places), {}, {}, false, {}
local longest_ms = -1
for n = 1, #held do
  local id, vt_ms, how = ARGV[places[n]], tonumber(ARGV[5 * n + 2]), ARGV[5 * n + 3]
  if held[n] == 'gone' then
    replies[n] = 0
  elseif held[n] == 'stale' then
    replies[n] = -1
  else
    replies[n] = 1
    sooner = sooner or now + vt_ms < tonumber(held[n])
    -- Leases that are renewed together do not end together.
    local spread = how == '' and math.min(10, vt_ms / (10 * #held)) * (n - 1) or 0
    changes[#changes + 1] = string.format('%.0f', math.floor(now + vt_ms + spread))
    changes[#changes + 1] = id
    if how ~= '' then over[#over + 1] = n end
    if vt_ms > longest_ms and with_headers({id}) then longest_ms = vt_ms end
  end
end
for from = 1, #changes, 4000 do
  redis.call('ZADD', zset, unpack(changes, from, math.min(#changes, from + 3999)))
end
if longest_ms > 0 then keep_headers(zset, longest_ms) end
local notes = {}
for i = 1, #over do
  local n = over[i]
  local at = places[n]
  local id, rc, fr = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if not rc then
    local stored = redis.call('HMGET', hash, id .. ':rc', id .. ':fr')
    rc, fr = number(stored[1], 0), number(stored[2], 0)
  end
  if rc and fr and rc > 0 then
    notes[#notes + 1] = id
    notes[#notes + 1] = note_of_return(read_notes(deliveries, {id})[1], rc, fr, ARGV[5 * n + 3], now)
  end
end
store_notes(deliveries, notes)
prune_notes_after(zset, deliveries, notes)
-- Waiters know when the next message was due; they are woken if one is due earlier now.
if sooner then
  redis.pcall('PUBLISH', ARGV[3], redis.call('ZCARD', zset))
  wake_waiters(zset, now, micros)
end
return replies
