-- Markers of dedup keys: the id that a message was stored under, and the incarnation that it was stored in.
-- A marker counts in no other one, so a key is free again once its queue (or topic) was deleted, by
-- whatever client, and made again. The incarnation is kept in the hash that is deleted with it.
-- Reads: lives_in (a hash), field (its field for the incarnation). Defines: marked(marker) -> the id, or false;
--   mark(marker, id, window). Only sends with a dedup key pay for it.
local incarnation = nil
local function marked(marker)
  if incarnation == nil then incarnation = redis.call('HMGET', lives_in, field)[1] end
  -- pcall: a marker of another type tells nothing, and is replaced.
  local found = incarnation and redis.pcall('GET', marker)
  if type(found) ~= 'string' then return false end
  local id, of = string.match(found, '^(%S+) (%S+)$')
  return of == incarnation and id
end
local function mark(marker, id, window)
  if not incarnation then
    -- Random characters of the first id that is marked.
    incarnation = string.sub(id, 11, 22)
    redis.call('HSET', lives_in, field, incarnation)
  end
  redis.call('SET', marker, id .. ' ' .. incarnation, 'PX', window)
end
