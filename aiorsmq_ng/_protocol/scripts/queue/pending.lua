-- Read leased messages, the one whose lease ends first in front, in bounded pages.
-- KEYS: zset, hash, deliveries.
-- ARGV: leased messages to skip, to return, and rank among the hidden ones to start at; a negative count walks from the end
--   towards the front.
-- Returns: {next rank or -1 at the end, leased messages still to skip, then per message: id, body, rc, fr, last delivery
--   (epoch ms), idle (ms); last, if there are any, a list of id, headers}.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(log n + 1000).
-- @include clock
-- @include read_queue
-- @include last_delivery
-- @include is_id
-- @include lean_lease
-- @include headers
local zset, hash, deliveries = KEYS[1], KEYS[2], KEYS[3]
local refused, queue_vt_ms = read_queue(zset, hash)
if refused then return refused end
local now = server_time()
local skip, count, at = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local backwards = count < 0
count = math.abs(count)
local ready = redis.call('ZCOUNT', zset, '-inf', now)
local hidden = redis.call('ZCARD', zset) - ready
local reply, seen = {-1, skip}, {}
local function finished()
  local headers = read_headers(zset, with_headers(seen))
  if #headers > 0 then reply[#reply + 1] = headers end
  return reply
end
if at >= hidden then return reply end

local range
if backwards then
  range = redis.call('ZREVRANGE', zset, at, math.min(hidden, at + 1000) - 1, 'WITHSCORES')
else
  range = redis.call('ZRANGE', zset, ready + at, ready + at + 999, 'WITHSCORES')
end
local fields, ids = {}, {}
for i = 1, #range, 2 do
  ids[#ids + 1] = range[i]
  fields[#fields + 1] = range[i]
  fields[#fields + 1] = range[i] .. ':rc'
  fields[#fields + 1] = range[i] .. ':fr'
end
local values = redis.call('HMGET', hash, unpack(fields))
local notes = read_notes(deliveries, ids)
for i = 1, #ids do
  local body, rc, fr = values[3 * i - 2], tonumber(values[3 * i - 1] or 0) or 0, tonumber(values[3 * i] or 0) or 0
  at = at + 1
  if rc == 0 and is_lean(range[2 * i]) then rc = 1 end
  if body and rc > 0 and is_id(ids[i]) then
    if skip > 0 then
      skip = skip - 1
    else
      local last = last_delivery(rc, fr, math.floor(tonumber(range[2 * i])), notes[i], queue_vt_ms, now)
      local size = #reply
      reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = ids[i], body, rc, fr
      reply[size + 5], reply[size + 6], seen[#seen + 1] = last, now - last, ids[i]
      count = count - 1
      if count == 0 then
        reply[2] = 0
        return finished()
      end
    end
  end
end
reply[2] = skip
if at < hidden then reply[1] = at end
return finished()
