-- Markers of dedup keys. A marker holds the id that a message was stored under, and the incarnation of the queue (or
-- topic) that it was stored in. A marker is valid in that incarnation only, so a dedup key is free again once its
-- queue was deleted, by any client, and created again: the incarnation is a field of a hash that is deleted with
-- the queue. Only sends with a dedup key pay for it.
-- hash, field: where the incarnation is stored; incarnation: text, or false if none was stored yet.
-- read_incarnation(hash, field) -> incarnation.
-- marked(marker, incarnation) -> the id of the first copy, or false.
-- mark(hash, field, incarnation, marker, id, window) -> the incarnation, created if there was none.
local function read_incarnation(hash, field) return redis.call('HMGET', hash, field)[1] end
local function marked(marker, incarnation)
  -- pcall: a marker of another type says nothing, and is replaced.
  local found = incarnation and redis.pcall('GET', marker)
  if type(found) ~= 'string' then return false end
  local id, of = string.match(found, '^(%S+) (%S+)$')
  return of == incarnation and id
end
local function mark(hash, field, incarnation, marker, id, window)
  if not incarnation then
    -- Random characters of the first id that is marked.
    incarnation = string.sub(id, 11, 22)
    redis.call('HSET', hash, field, incarnation)
  end
  redis.call('SET', marker, id .. ' ' .. incarnation, 'PX', window)
  return incarnation
end
