-- Read the time and the server's INFO.
-- KEYS: index (the node that holds it is the one asked).
-- ARGV: none.
-- Returns: {epoch seconds, microseconds, the text of INFO or '' if the user may not read it}.
-- Errors: none.
-- Cost: O(1), about 50 microseconds.
local time = redis.call('TIME')
local info = redis.pcall('INFO')
return {tonumber(time[1]), tonumber(time[2]), type(info) == 'string' and info or ''}
