-- Claim ready messages for a reader that may have to read them again: lease them, or move them out of the queue, and list
-- them under a number. Several calls make one claim; it is sealed by the call that finds no more messages, or that
-- reaches the limit, and never changes afterwards. An empty claim leaves nothing behind.
-- KEYS: zset, hash, deliveries, ledger, claim, bodies that were moved, group (the ledger again if it has no name).
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
-- @include lean_lease
-- @include runs
-- @include moved
-- @include held_headers
local zset, hash, deliveries, ledger, claim, list = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
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
  size = tonumber(last[2]) + part_of(last[1], 0, 0, math.huge).count
end
local wanted = math.max(0, math.min(most, limit - size))
local bound = math.min(now, latest or now)
if moving and wanted > 16 then
  -- Of long messages few fit into a call, and listing all that are wanted would take longer than moving these.
  local count, some_bytes = count_bytes(hash, ready_ids(zset, bound, 16), call_bytes)
  if count > 0 then wanted = math.min(wanted, math.ceil(16 + 1.5 * count * call_bytes / (some_bytes + 1))) end
end
local ids, more = ready_ids(zset, bound, wanted)
if size + #ids == 0 then
  -- A reader that waits for a long time must not lose its ledger meanwhile. One that holds moved messages has no TTL.
  local left = known[1] and redis.call('TTL', ledger) or -1
  if left >= 0 and left < ttl / 2 then
    redis.call('EXPIRE', ledger, ttl)
    redis.call('EXPIRE', KEYS[7], ttl)
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

-- Most messages were never received: they have no rc, and under a lean lease they get none. Their texts are made once.
local now_text, rcs, frs, notes, counted = string.format('%.0f', now), {}, {}, {}, {}
for i = 1, found do rcs[i], frs[i] = '1', now_text end
local expired = redis.call('ZCOUNT', leases_of(zset), '-inf', bound) > 0
local untouched = not expired and is_untouched(zset, hash)
if found > 0 and not untouched then
  local fields, scores = {}, expired and redis.call('ZMSCORE', zset, unpack(ids)) or {}
  for i = 1, found do fields[i] = ids[i] .. ':rc' end
  local stored = redis.call('HMGET', hash, unpack(fields))
  local again, places, before, firsts = {}, {}, {}, {}
  for i = 1, found do
    local lapsed = scores[i] and is_lean(scores[i])
    if stored[i] or lapsed then
      local n = #again + 1
      again[n], places[n], firsts[n] = ids[i], i, ids[i] .. ':fr'
      before[n] = whole(stored[i], 0) + (lapsed and 1 or 0)
    end
  end
  if #again > 0 then
    firsts = redis.call('HMGET', hash, unpack(firsts))
    for n = 1, #again do
      -- When a lean lease began is not known; this one is probably as long as that was.
      local lapsed = tonumber(scores[places[n]])
      firsts[n] = whole(firsts[n], lapsed and math.min(now, math.max(0, math.floor(lapsed) - lease_ms)) or now)
    end
    local histories = histories_of(zset, deliveries, again, before, firsts)
    for n = 1, #again do
      local i, history = places[n], histories[n]
      rcs[i], frs[i] = string.format('%.0f', before[n] + 1), string.format('%.0f', firsts[n])
      history.time, history.holder = now, ''
      counted[i] = true
      if rcs[i] ~= '1' then notes[i] = format_note(before[n] + 1, history, 'h', now) end
    end
  end
end

local fourths, taken, long = {}, found, false
if moving and found > 0 then
  redis.call('ZREMRANGEBYRANK', zset, 0, found - 1)
  for i = 1, found do
    if not bodies[i] then untouched = false end
  end
  if untouched then
    redis.call('HDEL', hash, unpack(ids))
  else
    local gone, kept = {}, 0
    for i = 1, found do
      local id, at = ids[i], 4 * i
      gone[at - 3], gone[at - 2], gone[at - 1], gone[at] = id, id .. ':rc', id .. ':fr', id .. ':meta'
    end
    redis.call('HDEL', hash, unpack(gone))
    redis.pcall('HDEL', deliveries, unpack(ids))
    -- An id without a body is a phantom: it is removed and not claimed.
    for i = 1, found do
      if bodies[i] then
        kept = kept + 1
        ids[kept], bodies[kept], rcs[kept], frs[kept], notes[kept] = ids[i], bodies[i], rcs[i], frs[i], notes[i]
      end
    end
    for i = kept + 1, found do ids[i] = nil end
    taken = kept
  end
  hold_headers(zset, with_headers(ids))
  long = are_long(read, taken)
  for i = 1, taken do fourths[i] = string.format(long and '+%.0f' or '%.0f', read) end
elseif found > 0 then
  local ends, lease, width = now + lease_ms, nil, nil
  local whole_score, scores, changes, again = string.format('%.0f', ends), {}, {}, {}
  for i = 1, found do
    if counted[i] then
      local at = #changes
      fourths[i], scores[2 * i - 1], scores[2 * i], lease = '0', whole_score, ids[i], nil
      changes[at + 1], changes[at + 2], changes[at + 3], changes[at + 4] = ids[i] .. ':rc', rcs[i], ids[i] .. ':fr', frs[i]
      if notes[i] then again[#again + 1], again[#again + 2] = ids[i], notes[i] end
    else
      -- Every run has a score of its own.
      if not lease or #ids[i] ~= width then
        lease = reserve_score(zset, ends)
        width = #ids[i]
      end
      fourths[i], scores[2 * i - 1], scores[2 * i] = lease, lease, ids[i]
    end
  end
  redis.call('ZADD', zset, unpack(scores))
  if #changes > 0 then redis.call('HSET', hash, unpack(changes)) end
  store_notes(deliveries, again)
  prune_notes_after(zset, deliveries, again)
  redis.call('EXPIRE', leases_of(zset), ttl)
end
-- Their messages were leased again just now, or are leased by others.
if expired then prune_leases(zset, bound) end

local total = size + taken
local full = total >= limit or bytes >= byte_limit
local complete = full or (found == listed and not more)
local entry = known[1] and {} or {'fence', fence, 'acked', 0, 'mode', ARGV[8], 'ttl', ttl}
local function enter(field, value) entry[#entry + 1], entry[#entry + 2] = field, value end
if complete then
  if size > 0 then redis.call('HDEL', ledger, 'open', 'bytes') end
  if total > 0 then enter('sealed:' .. claim_number, total) end
elseif taken > 0 then
  if size == 0 then enter('open', claim_number) end
  if left < math.huge then enter('bytes', string.format('%.0f', bytes)) end
end
if #entry > 0 then redis.call('HSET', ledger, unpack(entry)) end
if taken > 0 then
  local runs, sizes = runs_of(ids, rcs, frs, fourths, moving and notes or {}, taken)
  local entries, first = {}, size
  for i = 1, #runs do
    entries[2 * i - 1], entries[2 * i], first = first, runs[i], first + sizes[i]
  end
  redis.call('ZADD', claim, unpack(entries))
  if moving then store_bodies(list, bodies, taken, size, long) end
  redis.call('HSET', hash, 'totalrecv', string.format('%.0f', received + taken))
end
if not moving then
  redis.call('EXPIRE', ledger, ttl)
  redis.call('EXPIRE', claim, ttl)
  if KEYS[7] ~= ledger then redis.call('EXPIRE', KEYS[7], ttl) end
elseif taken > 0 then
  -- Moved messages are stored nowhere else, so the keys that hold them have no TTL.
  redis.call('PERSIST', ledger)
  redis.call('PERSIST', KEYS[7])
  count_moved(zset, claim, taken)
end
return {total, complete and 1 or 0, full and 1 or 0}
