-- Find keys of a namespace, one page of the node that holds its index.
-- KEYS: index.
-- ARGV: cursor ('0' = from the start), pattern, how many keys to examine.
-- Returns: {next cursor ('0' = this was the last page), the keys that match, those of them that are call records, reasons
--   or dedup markers and no strings}; or {'', why the server refuses}.
-- Errors: none.
-- Cost: O(keys examined).
local page = redis.pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
if page.err then return {'', page.err} end
local odd = {}
for _, key in ipairs(page[2]) do
  local kind = string.match(key, ':ng:(%a+):')
  if kind == 'call' or kind == 'reason' or kind == 'dedup' then
    -- pcall: a user may have no right to look. A key may have expired since.
    local stored = redis.pcall('TYPE', key).ok
    if stored and stored ~= 'none' and stored ~= 'string' then odd[#odd + 1] = key end
  end
end
return {page[1], page[2], odd}
