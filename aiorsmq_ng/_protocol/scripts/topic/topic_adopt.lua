-- Let the keeper of a consumer have what a dead peer left: the messages from before the keeper subscribed, because it
-- has copies of its own of all others. One step; the first one ends the peer's subscription, and makes the subscription
-- that adopts the keeper.
-- KEYS: topic, heard, gone, index, then zset, hash, deliveries of the dead peer, and of the keeper.
-- ARGV: version that the caller knows, random characters, queue of the dead peer, its last sign in heard ('' = any), queue
--   of the keeper, messages in one step, wake-up channel of the keeper.
-- Returns: 1 done, 0 call again.
-- Errors: topicChanged.
-- Cost: O(messages in a step); O(1) if nothing was published since the keeper subscribed and its queue is empty.
-- @include clock
-- @include topic_version
-- @include peer_liveness
-- @include merge_queues
-- @include wake_waiters
-- @include allow_writes_when_full
local topic, heard, gone, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, to, page = {KEYS[5], KEYS[6], KEYS[7]}, {KEYS[8], KEYS[9], KEYS[10]}, tonumber(ARGV[6])
local now, seconds, micros = server_time()
if not version_is(topic, ARGV[1]) or not still_silent(heard, ARGV[3], ARGV[4]) then return 'topicChanged' end
local state, ended = string.match(redis.call('HGET', topic, 'q:' .. ARGV[3]) or '', '^(%a+)( .*)$')
local settings, keeper, rest, since =
  string.match(redis.call('HGET', topic, 'q:' .. ARGV[5]) or '', '^(on broadcast %d+ )(%d)( .* (%d+))$')
if not state or not since then return 'topicChanged' end
redis.call('ZCARD', from[1])
redis.call('ZCARD', to[1])
allow_writes_when_full(heard)
redis.call('HSET', topic, 'q:' .. ARGV[5], settings .. '1' .. rest)
local before, done = redis.call('ZCARD', to[1]), true
if tonumber(redis.call('HGET', topic, 'last') or 0) <= tonumber(since) then
  done = merge_queues(from, to, page)
else
  local ids, wanted, own = redis.call('ZRANGE', from[1], 0, page - 1), {}, {}
  for i = 1, #ids do
    -- An id without a send time counts as old: a second copy is better than none.
    local sent = string.match(ids[i], '^%w%w%w%w%w%w%w%w%w%w') and tonumber(string.sub(ids[i], 1, 10), 36)
    local list = (sent or 0) < tonumber(since) and wanted or own
    list[#list + 1] = ids[i]
  end
  transfer(from, to, wanted)
  delete_messages(from, own)
  done = #ids < page
end
local present = redis.call('ZCARD', to[1])
if present > before then
  redis.pcall('PUBLISH', ARGV[7], present)
  wake_waiters(to[1], now, micros)
end
if state == 'on' then remember_dead_peer(gone, ARGV[3], now) end
if done then
  redis.call('UNLINK', from[1], from[2], from[3])
  drop_headers(from[1])
  redis.call('SREM', index, ARGV[3])
  redis.call('HDEL', topic, 'q:' .. ARGV[3])
  redis.call('HDEL', heard, ARGV[3])
else
  redis.call('HSET', topic, 'q:' .. ARGV[3], 'left' .. ended)
end
if state == 'on' or keeper == '0' then renew_version(topic, seconds, micros, ARGV[2]) end
return done and 1 or 0
