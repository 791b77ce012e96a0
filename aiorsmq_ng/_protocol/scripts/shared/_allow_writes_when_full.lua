-- A server that is out of memory refuses every command that may take memory, unless the script has
-- written already. allow_writes_when_full(hash) is such a write: it removes a field that no hash has. For
-- scripts that free memory later, for example by leasing a message that is going to be deleted.
local function allow_writes_when_full(hash) redis.call('HDEL', hash, '') end
