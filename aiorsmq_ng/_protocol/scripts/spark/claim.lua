-- Claim ready messages for a reader that may have to read them again: lease them, or move them out of the queue, and list
-- them under a number. Several calls make one claim; it is sealed by the call that finds no more messages, or that
-- reaches the limit, and never changes afterwards. An empty claim leaves nothing behind.
-- KEYS: zset, hash, deliveries, ledger, claim, group.
-- ARGV: fence, number of the claim, messages in the claim at most, by this call at most, lease (ms), latest time at which
--   a message became visible (epoch ms, '' = now), TTL (s), lease or move, 1 if the ledger may be created, bytes of bodies
--   in the claim (0 = any number), bytes that this call may move. The message that reaches one of these is the last one.
-- Returns: {messages in the claim, 1 if it is complete or 0, 1 if this call completed it because of a limit or 0}.
-- Errors: queueNotFound, queueCorrupt, fenced, ledgerGone.
-- Cost: O(messages * log n), at most 1000 messages; in mode move O(bytes) besides.
-- @include clock
-- @include read_queue
-- @include delivery_notes
-- @include prune_notes
-- @include ready_ids
-- @include runs
local zset, hash, deliveries, ledger, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local fence, claim_number, limit, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease_ms, latest, ttl, moving = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8] == 'move'
local byte_limit, call_bytes = tonumber(ARGV[10]), tonumber(ARGV[11])
if byte_limit == 0 then byte_limit = math.huge end
local refused, _, _, _, _, received = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local known = redis.call('HMGET', ledger, 'fence', 'sealed:' .. claim_number, 'bytes')
if known[1] and known[1] ~= fence then return 'fenced' end
if not known[1] and ARGV[9] ~= '1' then return 'ledgerGone' end
if known[2] then return {tonumber(known[2]), 1, 0} end

local size, last = 0, redis.call('ZRANGE', claim, -1, -1, 'WITHSCORES')
if #last > 0 then
  local _, _, width, at = split_run(last[1])
  size = tonumber(last[2]) + (moving and 1 or (#last[1] - at + 1) / width)
end
local wanted = math.max(0, math.min(most, limit - size))
local bound = math.min(now, latest or now)
local ids, more = ready_ids(zset, bound, wanted)
if size + #ids == 0 then
  -- A reader that waits for a long time must not lose its ledger meanwhile.
  if known[1] and not moving and redis.call('TTL', ledger) < ttl / 2 then
    redis.call('EXPIRE', ledger, ttl)
    redis.call('EXPIRE', KEYS[6], ttl)
  end
  return {0, more and 0 or 1, 0}
end

local listed, found, bodies, bytes = #ids, #ids, nil, size > 0 and tonumber(known[3]) or 0
local left, read = byte_limit - bytes, 0
if moving then
  bodies, found, read = read_bodies(hash, ids, math.min(left, call_bytes))
elseif left < math.huge then
  found, read = count_bytes(hash, ids, left)
end
for i = listed, found + 1, -1 do ids[i] = nil end
bytes = bytes + read

-- Most messages were never received and have no rc. Their text is made once.
local rcs, frs, counts, notes = {}, {}, {}, {}
if found > 0 then
  for i = 1, found do counts[i] = ids[i] .. ':rc' end
  local stored, now_text = redis.call('HMGET', hash, unpack(counts)), string.format('%.0f', now)
  local again, places, before, firsts = {}, {}, {}, {}
  for i = 1, found do
    rcs[i], frs[i] = '1', now_text
    if stored[i] then
      local n = #again + 1
      again[n], places[n], firsts[n] = ids[i], i, ids[i] .. ':fr'
      before[n] = whole(stored[i], 0)
    end
  end
  if #again > 0 then
    firsts = redis.call('HMGET', hash, unpack(firsts))
    for n = 1, #again do firsts[n] = whole(firsts[n], now) end
    local histories = histories_of(zset, deliveries, again, before, firsts)
    for n = 1, #again do
      local i, history = places[n], histories[n]
      rcs[i], frs[i] = string.format('%.0f', before[n] + 1), string.format('%.0f', firsts[n])
      history.time, history.holder = now, ''
      if rcs[i] ~= '1' then notes[i] = format_note(before[n] + 1, history, 'h', now) end
    end
  end
end

local entries, taken = {}, found
if moving and found > 0 then
  local gone = {}
  taken = 0
  for i = 1, found do
    local id, at = ids[i], 4 * i
    gone[at - 3], gone[at - 2], gone[at - 1], gone[at] = id, counts[i], id .. ':fr', id .. ':meta'
    -- An id without a body is a phantom: it is removed and not claimed.
    if bodies[i] then
      entries[2 * taken + 1] = size + taken
      local note = notes[i]
      entries[2 * taken + 2] = rcs[i] .. ' ' .. frs[i] .. ' ' .. #id .. (note and ' ' .. #note or '') .. '\n'
        .. id .. bodies[i] .. (note or '')
      taken = taken + 1
    end
  end
  redis.call('ZREM', zset, unpack(ids))
  redis.call('HDEL', hash, unpack(gone))
  redis.pcall('HDEL', deliveries, unpack(ids))
elseif found > 0 then
  local scores, changes, score = {}, {}, string.format('%.0f', now + lease_ms)
  for i = 1, found do
    local at = 4 * i
    scores[2 * i - 1], scores[2 * i] = score, ids[i]
    changes[at - 3], changes[at - 2], changes[at - 1], changes[at] = counts[i], rcs[i], ids[i] .. ':fr', frs[i]
  end
  redis.call('ZADD', zset, unpack(scores))
  redis.call('HSET', hash, unpack(changes))
  local again = {}
  for i, note in pairs(notes) do again[#again + 1], again[#again + 2] = ids[i], note end
  store_notes(deliveries, again)
  prune_notes_after(zset, deliveries, again)
  local runs, sizes = runs_of(ids, rcs, frs, found)
  local at = size
  for i = 1, #runs do
    entries[2 * i - 1], entries[2 * i], at = at, runs[i], at + sizes[i]
  end
end

if not known[1] then
  redis.call('HSET', ledger, 'fence', fence, 'acked', 0, 'mode', ARGV[8])
end
if taken > 0 then
  if size == 0 then redis.call('HSET', ledger, 'open', claim_number) end
  if left < math.huge then redis.call('HSET', ledger, 'bytes', string.format('%.0f', bytes)) end
  redis.call('ZADD', claim, unpack(entries))
  redis.call('HSET', hash, 'totalrecv', string.format('%.0f', received + taken))
end
if not moving then
  -- Moved messages are stored nowhere else, so the keys that hold them have no TTL.
  redis.call('EXPIRE', ledger, ttl)
  redis.call('EXPIRE', claim, ttl)
  redis.call('EXPIRE', KEYS[6], ttl)
end
local total = size + taken
local full = total >= limit or bytes >= byte_limit
local complete = full or (found == listed and not more)
if complete then
  redis.call('HDEL', ledger, 'open', 'bytes')
  if total > 0 then redis.call('HSET', ledger, 'sealed:' .. claim_number, total) end
end
return {total, complete and 1 or 0, full and 1 or 0}
