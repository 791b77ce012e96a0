-- The ids of messages.
-- A sorted set may hold members that are no ids, because other programs can write to it. Such a member may equal an
-- attribute of the queue (vt) or a field of another message (<id>:rc). So no script returns it as a message or writes a
-- field of the hash by it. A script that takes or removes messages removes it from the sorted set, and leaves the hash
-- as it is.
-- is_id(text) -> true if it can be the id of a message: 20 to 64 letters, digits and colons that do not end as the fields
--   of a message do. RSMQ's ids have 32 characters, those of old Rust clients 28 to 31; attributes have fewer than 20.
--   limits.check_id is the same rule.
local function is_id(text)
  local size = #text
  if size < 20 or size > 64 then return false end
  -- Twice as fast as a search for any other character; this is asked twice for every message.
  if string.match(text, '^%w*()') > size then return true end
  local tail = string.match(text, ':(%a*)$')
  return not string.find(text, '[^%w:]') and tail ~= 'rc' and tail ~= 'fr' and tail ~= 'meta'
end
