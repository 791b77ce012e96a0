-- Read why a message was rejected into this queue. A reason of an earlier stay of the message (it was moved back and
-- rejected again) does not count: the time of the first receive distinguishes them.
-- KEYS: reason, hash, deliveries.
-- ARGV: id.
-- Returns: {the text, or nil}.
-- Errors: none.
-- Cost: O(1).
-- @include delivery_notes
-- @include side_key
local fr, text = string.match(call_side('GET', KEYS[1]) or '', '^(%d+) (.*)$')
local stored = redis.call('HGET', KEYS[2], ARGV[1] .. ':fr')
if fr and fr == stored then return {text} end
-- A message that a receive has dead-lettered has its reason in its note.
local why = stored and parse_note(read_notes(KEYS[3], {ARGV[1]})[1], 0, 0).why or ''
return {why ~= '' and string.sub(why, 2) or nil}
