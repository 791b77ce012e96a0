-- Tell the time and what the server says of itself.
-- KEYS: index (the node that holds it is the one asked). ARGV: none.
-- Returns: {epoch seconds, microseconds, the text of INFO or '' where that is not to be had}.
-- Cost: O(1), some 50 microseconds.
local time = redis.call('TIME')
local info = redis.pcall('INFO')
return {tonumber(time[1]), tonumber(time[2]), type(info) == 'string' and info or ''}
