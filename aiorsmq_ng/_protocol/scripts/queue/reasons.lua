-- Read why messages were rejected into this queue, as reason does for one.
-- KEYS: hash, deliveries, then the reason of each.
-- ARGV: ids.
-- Returns: per id the text, or '' if there is none.
-- Errors: none.
-- Cost: O(ids), at most 1000 ids.
-- @include delivery_notes
local fields, ids, result = {}, {}, {}
for i = 1, #ARGV do fields[i], ids[i] = ARGV[i] .. ':fr', ARGV[i] end
local firsts = redis.call('HMGET', KEYS[1], unpack(fields))
local known, notes = redis.call('MGET', unpack(KEYS, 3)), read_notes(KEYS[2], ids)
for i = 1, #ARGV do
  local fr, text = string.match(known[i] or '', '^(%d+) (.*)$')
  result[i] = fr and fr == firsts[i] and text or firsts[i] and string.sub(parse_note(notes[i], 0, 0).why, 2) or ''
end
return result
