-- Peers that have copies of their own and were not heard of for too long. One that has a sibling which
-- is alive is taken off; the last ones stay, and their messages wait for the consumer's return.
-- Reads: topic, heard, now. Defines: take_off(peers) -> place of each peer taken off -> true, or nil.
--   put_off(queue, state) notes that a subscription is over: off (silent), left or gone (taken over).
-- peers: list of {queue, group (peers of one consumer share it), silence allowed (ms)}; false: none.
local function take_off(peers)
  local fields, places = {}, {}
  for at = 1, #peers do
    if peers[at] then
      fields[#fields + 1] = peers[at][1]
      places[#places + 1] = at
    end
  end
  if #fields < 2 then return nil end
  local times = redis.call('HMGET', heard, unpack(fields))
  local alive, gone = {}, nil
  for i = 1, #places do
    local group, most = peers[places[i]][2], tonumber(peers[places[i]][3])
    -- A peer of which nothing is known any more gets the benefit of the doubt.
    times[i] = now - (tonumber(times[i] or now) or now) > most
    if not times[i] then alive[group] = true end
  end
  for i = 1, #places do
    if times[i] and alive[peers[places[i]][2]] then
      gone = gone or {}
      gone[places[i]] = true
    end
  end
  return gone
end
local function put_off(queue, state)
  local record = redis.call('HGET', topic, 'q:' .. queue)
  if record then redis.call('HSET', topic, 'q:' .. queue, (string.gsub(record, '^%a+', state))) end
end
