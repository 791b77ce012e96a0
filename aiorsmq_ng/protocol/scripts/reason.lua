-- Tell why a message was rejected into this queue. What was said of an earlier life of the message
-- (it was moved back and came again) does not count: the first receive tells them apart.
-- KEYS: reason, hash. ARGV: id. Returns: {the text, or nil}. Cost: O(1).
local fr, text = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (.*)$')
if fr and fr == redis.call('HGET', KEYS[2], ARGV[1] .. ':fr') then return {text} end
return {}
