-- A topic's version changes whenever the set of queues changes that its messages go into. A version is
-- never used twice, not even by a topic that was deleted and made anew.
-- Reads: topic, seconds, micros. Defines: version_is(expected) -> whether the caller knows the newest;
--   changed(nonce) makes a new one of the time and of random characters.
local function version_is(expected)
  return (redis.call('HGET', topic, 'version') or '') == expected
end
local function changed(nonce)
  redis.call('HSET', topic, 'version', string.format('%.0f-%s', seconds * 1000000 + micros, nonce))
end
