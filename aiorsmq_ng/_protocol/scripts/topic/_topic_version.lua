-- The version of a topic changes whenever the set of queues changes that its messages go into. A version is never used
-- twice, not even by a topic that was deleted and created again.
-- version_is(topic, expected) -> true if the caller knows the newest version.
-- renew_version(topic, seconds, micros, nonce) stores a new version, made of the time and of random characters.
local function version_is(topic, expected)
  return (redis.call('HGET', topic, 'version') or '') == expected
end
local function renew_version(topic, seconds, micros, nonce)
  redis.call('HSET', topic, 'version', string.format('%.0f-%s', seconds * 1000000 + micros, nonce))
end
