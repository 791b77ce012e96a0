-- Dead letters: messages that were received too often go to another queue, which is created if it does not exist.
-- A dead-letter queue is the table {limit, source, zset, hash, deliveries, index, name, channel, now, seconds, micros};
-- source is the zset that the messages are in, and the last three are the script's time. check_dead_letters adds what the
-- other functions need; rows is a flat list of what was moved: id, body (empty after the first MiB), rc, fr and why;
-- headers one of id, headers of those that have some.
-- check_dead_letters(dead) -> a code word if the queue's keys are damaged.
-- store_dead_letter(dead, id, body, rc, fr, maxsize, note) stores a message in the dead-letter queue, with the delivery note
--   that names the reason and with its headers. The caller removes it from its own.
-- dead_letter(dead, id, body, rc, fr, maxsize, history) does the same for a message that was received too often.
-- finish_dead_letters(dead) writes the counter and wakes waiters.
-- @include number
-- @include fill_attributes
-- @include delivery_notes
-- @include prune_notes
-- @include wake_waiters
-- @include headers
-- @include store_headers
local function check_dead_letters(dead)
  redis.call('ZCARD', dead.zset)
  local stored = redis.call('HMGET', dead.hash, 'vt', 'delay', 'maxsize', 'totalsent')
  dead.missing = not (stored[1] and stored[2] and stored[3])
  dead.sent, dead.added, dead.rows, dead.bytes, dead.headers = number(stored[4], 0), 0, {}, 0, {}
  if not dead.sent or dead.sent % 1 ~= 0 then return 'queueCorrupt' end
end
local function why_dead(rc, history, now)
  local often = rc - history.excused
  local why = 'received ' .. (often == 1 and 'once' or string.format('%.0f times', often)) .. ' without being settled'
  if history.excused > 0 then
    why = why .. string.format(' (and %.0f times given back before the work began)', history.excused)
  end
  if history.holder ~= '' then why = why .. '; last holder ' .. history.holder end
  if history.time then
    why = why .. string.format('; last delivery %.0f s ago', math.max(0, now - history.time) / 1000)
  end
  return why
end
local function store_dead_letter(dead, id, body, rc, fr, maxsize, note)
  if dead.missing then
    redis.call('SADD', dead.index, dead.name)
    fill_attributes(dead.hash, 30, 0, maxsize, dead.seconds)
    dead.missing = false
  end
  redis.call('ZADD', dead.zset, string.format('%.0f', dead.now), id)
  redis.call('HSET', dead.hash, id, body, id .. ':rc', rc, id .. ':fr', string.format('%.0f', fr))
  dead.added = dead.added + 1
  store_notes(dead.deliveries, {id, note})
  local headers = read_headers(dead.source, with_headers({id}))
  store_headers(dead.zset, headers, DEAD_LETTERS_MS)
  for i = 1, #headers do dead.headers[#dead.headers + 1] = headers[i] end
end
local function dead_letter(dead, id, body, rc, fr, maxsize, history)
  local why, size = why_dead(rc, history, dead.now), #dead.rows
  dead.bytes = dead.bytes + #body
  dead.rows[size + 1], dead.rows[size + 2], dead.rows[size + 3] = id, dead.bytes <= 1048576 and body or '', rc
  dead.rows[size + 4], dead.rows[size + 5] = fr, why
  -- It stays a suspect: a consumer of dead letters gets it alone.
  history.why, history.strikes = '\n' .. why, history.strikes - 1
  store_dead_letter(dead, id, body, rc, fr, maxsize, format_note(rc, history, 'h', dead.now))
end
local function finish_dead_letters(dead)
  if dead.added > 0 then
    redis.call('HSET', dead.hash, 'totalsent', string.format('%.0f', dead.sent + dead.added))
    prune_notes(dead.zset, dead.deliveries, dead.added)
    redis.pcall('PUBLISH', dead.channel, redis.call('ZCARD', dead.zset))
    wake_waiters(dead.zset, dead.now, dead.micros, dead.now)
  end
end
