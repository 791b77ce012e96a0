-- Begin to commit an epoch of a job: store what belongs to it, unless an earlier commit that did not end stored that
-- already; then the earlier text is valid.
-- KEYS: epochs, then the lists that hold the rows.
-- ARGV: epoch, what belongs to it (text), TTL of all keys from now on (s).
-- Returns: {the valid text, or '' if the epoch is committed already}.
-- Errors: none.
-- Cost: O(keys).
local done = tonumber(redis.call('HGET', KEYS[1], 'done') or -1)
if done >= tonumber(ARGV[1]) then return {''} end
local field = 'begun:' .. ARGV[1]
local begun = redis.call('HGET', KEYS[1], field)
if not begun then
  redis.call('HSET', KEYS[1], field, ARGV[2])
  begun = ARGV[2]
  for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[3]) end
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {begun}
