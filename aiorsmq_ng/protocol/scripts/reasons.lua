-- Tell why messages were rejected into this queue, as reason does for one.
-- KEYS: hash, then the reason of each. ARGV: ids. Returns: per id the text, or '' if there is none.
-- Cost: O(ids), at most 1000 ids.
local fields, result = {}, {}
for i = 1, #ARGV do fields[i] = ARGV[i] .. ':fr' end
local firsts = redis.call('HMGET', KEYS[1], unpack(fields))
local known = redis.call('MGET', unpack(KEYS, 2))
for i = 1, #ARGV do
  local fr, text = string.match(known[i] or '', '^(%d+) (.*)$')
  result[i] = fr and fr == firsts[i] and text or ''
end
return result
