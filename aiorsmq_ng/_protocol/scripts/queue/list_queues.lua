-- List the queues of a namespace, or its topics, one page.
-- KEYS: index.
-- ARGV: cursor ('0' = from the start), how many names to look at.
-- Returns: {next cursor ('0' = this was the last page), then names, unordered; one may come twice}.
-- Errors: none.
-- Cost: O(names looked at).
local page = redis.call('SSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local reply = {tostring(page[1])}
for i = 1, #page[2] do reply[i + 1] = page[2][i] end
return reply
