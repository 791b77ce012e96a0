-- Tell why a message was rejected into this queue. What was said of an earlier life of the message
-- (it was moved back and came again) does not count: the first receive tells them apart.
-- KEYS: reason, hash, deliveries. ARGV: id. Returns: {the text, or nil}. Cost: O(1).
-- @include past
local fr, text = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (.*)$')
local stored = redis.call('HGET', KEYS[2], ARGV[1] .. ':fr')
if fr and fr == stored then return {text} end
-- A message that a receive has put aside has its reason in its past.
local why = stored and past_of(notes_on(KEYS[3], {ARGV[1]})[1], 0, 0).why or ''
return {why ~= '' and string.sub(why, 2) or nil}
