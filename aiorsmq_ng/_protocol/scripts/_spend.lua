-- Go on when the server is out of memory. It then refuses commands that may take memory, unless the
-- script has written already; spend() is such a write, of nothing. Callers free memory later.
-- Reads: hash. Defines: spend().
local function spend() redis.call('HDEL', hash, '') end
