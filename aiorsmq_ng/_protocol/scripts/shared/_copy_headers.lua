-- copy_headers(from, to, ids, delay_ms) copies headers of messages to another queue, which has the messages already. from, to:
--   the sorted sets of the queues. delay_ms: how long the messages are delayed there, or nil. The caller removes the messages
--   from its own.
-- @include headers
-- @include store_headers
local function copy_headers(from, to, ids, delay_ms)
  local found = with_headers(ids)
  if found then store_headers(to, read_headers(from, found), delay_ms) end
end
