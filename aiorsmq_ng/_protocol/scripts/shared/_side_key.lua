-- Commands on side keys: keys that this library adds to those of RSMQ. Another program may have stored something of another
-- type there; a queue works without its side keys.
-- call_side(...) -> the reply of a command; nil if the key is of another type. Any other error ends the script, and the
--   command is not tried again, as the server logs every refusal.
local function call_side(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return nil end
  -- Before Redis 7 only a text can be raised; it would hide the code of the error from newer servers' clients.
  error(redis.REDIS_VERSION_NUM and reply or reply.err, 0)
end
