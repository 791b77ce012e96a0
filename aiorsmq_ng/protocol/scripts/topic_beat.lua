-- Say that a peer is alive, and take off siblings of it that were silent for too long.
-- KEYS: topic, heard. ARGV: random characters, queue, field of the peer in heard.
-- Returns: {1 subscribed, 0 not; version}. Cost: O(1), and every tenth of the shortest silence of a
--   consumer's peers, whoever of them comes then, O(subscriptions).
local topic, heard = KEYS[1], KEYS[2]
-- @include clock
-- @include topic_changed
-- @include silent
local record = redis.call('HGET', topic, 'q:' .. ARGV[2])
if not record or not string.match(record, '^on ') then
  return {0, redis.call('HGET', topic, 'version') or ''}
end
-- See _spend.lua: a full server takes what follows, so that its queues can be emptied.
redis.call('HDEL', heard, '')
local silence, consumer = string.match(record, '^on each (%d+) %d (%S+) ')
local due = consumer and tonumber(redis.call('HGET', heard, 'look:' .. consumer) or 0) or 0
-- A time far ahead is from a clock that has been set back.
if consumer and (now >= due or due > now + tonumber(silence)) then
  local all, peers, sign = redis.call('HGETALL', topic), {}, 0
  for i = 1, #all, 2 do
    local most, whose = string.match(all[i + 1], '^on each (%d+) %d (%S+) ')
    if whose == consumer then
      peers[#peers + 1] = {string.sub(all[i], 3), whose, most}
      silence = math.min(silence, most)
      if peers[#peers][1] == ARGV[2] then sign = #peers end
    end
  end
  local gone = take_off(peers, sign)
  for at in pairs(gone or {}) do put_off(peers[at][1], 'off') end
  if gone then changed(ARGV[1]) end
  -- Nobody can be silent for too long, and then speak, before the next look: see _silent.lua.
  redis.call('HSET', heard, 'look:' .. consumer, string.format('%.0f', now + silence / 10))
end
hear(ARGV[3], ARGV[2], tonumber(string.match(record, '^on %a+ (%d+)')))
return {1, redis.call('HGET', topic, 'version')}
