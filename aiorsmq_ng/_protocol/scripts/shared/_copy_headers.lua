-- copy_headers(from, to, ids) copies headers of messages to another queue, which has the messages already. from, to: the
--   sorted sets of the queues. The caller removes the messages from its own.
-- @include headers
-- @include store_headers
local function copy_headers(from, to, ids)
  local found = with_headers(ids)
  if found then store_headers(to, read_headers(from, found)) end
end
