-- Read the time and the server's INFO.
-- KEYS: index (the node that holds it is the one asked).
-- ARGV: none.
-- Returns: {epoch seconds, microseconds, the text of INFO or '', why the server refuses INFO or ''}.
-- Errors: none.
-- Cost: O(1), about 50 microseconds.
local time = redis.call('TIME')
local info = redis.pcall('INFO')
if type(info) == 'string' then return {tonumber(time[1]), tonumber(time[2]), info, ''} end
return {tonumber(time[1]), tonumber(time[2]), '', info.err or ''}
