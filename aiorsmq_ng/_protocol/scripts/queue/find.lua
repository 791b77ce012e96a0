-- Read one message of any state by its id.
-- KEYS: zset, hash.
-- ARGV: id.
-- Returns: as scan, with no place to go on after: {now (ms), '', ''}, then id, body, rc, fr, score if it is there, and a list
--   of id, headers if it has some.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(1).
-- @include clock
-- @include read_queue
-- @include headers
local zset, hash, id = KEYS[1], KEYS[2], ARGV[1]
local refused = read_queue(zset, hash)
if refused then return refused end
local score = redis.call('ZSCORE', zset, id)
local values = redis.call('HMGET', hash, id, id .. ':rc', id .. ':fr')
local now = server_time()
local reply = {now, '', ''}
if score and values[1] then
  reply[4], reply[5] = id, values[1]
  reply[6], reply[7] = tonumber(values[2] or 0) or 0, tonumber(values[3] or 0) or 0
  reply[8] = score
  local headers = read_headers(zset, with_headers({id}))
  if #headers > 0 then reply[9] = headers end
end
return reply
