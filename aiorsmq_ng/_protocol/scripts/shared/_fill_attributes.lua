-- fill_attributes(hash, vt, delay, maxsize, seconds) stores the attributes that a queue does not have yet.
--   vt and delay in seconds, maxsize in bytes, seconds: the present time.
local function fill_attributes(hash, vt, delay, maxsize, seconds)
  redis.call('HSETNX', hash, 'vt', vt)
  redis.call('HSETNX', hash, 'delay', delay)
  redis.call('HSETNX', hash, 'maxsize', maxsize)
  redis.call('HSETNX', hash, 'created', seconds)
  redis.call('HSETNX', hash, 'modified', seconds)
end
