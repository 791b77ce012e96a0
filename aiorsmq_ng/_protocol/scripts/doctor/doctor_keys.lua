-- Find keys of a namespace, one page of the node that holds its index.
-- KEYS: index.
-- ARGV: cursor ('0' = from the start), pattern, how many keys to examine.
-- Returns: {next cursor ('0' = this was the last page), then the keys that match}; or {'', why the server refuses}.
-- Errors: none.
-- Cost: O(keys examined).
local page = redis.pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
if page.err then return {'', page.err} end
local reply = {page[1]}
for i = 1, #page[2] do reply[i + 1] = page[2][i] end
return reply
