-- Peers that have copies of their own and were not heard of for too long. One that has a sibling which
-- is alive is taken off; the last ones stay, and their messages wait for the consumer's return. If nobody
-- of a consumer was heard of for as long, it may be that the server was away, and not they: then the time
-- of the first sign after that is noted, and from then on each of them has its silence once more.
-- Reads: topic, heard, now. Defines: take_off(peers, sign) -> place of each peer taken off -> true, or nil;
--   sign is the place of a peer that is heard of now, if any.
--   hear(field, queue, silence) notes that a peer is alive; if it is a new one of those that share a queue,
--   others of which nothing was heard for twice the silence (ms) are forgotten.
--   put_off(queue, state) notes that a subscription is over: off (silent), left or gone (taken over).
-- peers: list of {queue, group (peers of one consumer share it), silence allowed (ms)}; false: none.
local function hear(field, queue, silence)
  local new = redis.call('HSET', heard, field, string.format('%.0f', now))
  if new == 0 or field == queue then return end
  local all, start = redis.call('HGETALL', heard), queue .. ' '
  for i = 1, #all, 2 do
    local shares = string.sub(all[i], 1, #start) == start
    if shares and now - (tonumber(all[i + 1]) or 0) > 2 * silence then redis.call('HDEL', heard, all[i]) end
  end
end
local function again(group)
  return tonumber(string.match(redis.call('HGET', heard, 'again:' .. group) or '', '^%d+') or 0)
end
local function take_off(peers, sign)
  local fields, places = {}, {}
  for at = 1, #peers do
    if peers[at] then
      fields[#fields + 1] = peers[at][1]
      places[#places + 1] = at
    end
  end
  if #fields < 2 then return nil end
  local times = {}
  for first = 1, #fields, 1000 do
    local page = redis.call('HMGET', heard, unpack(fields, first, math.min(#fields, first + 999)))
    for i = 1, #page do times[first + i - 1] = page[i] end
  end
  local alive, last, noted, gone = {}, {}, {}, nil
  for i = 1, #places do
    local group, most = peers[places[i]][2], tonumber(peers[places[i]][3])
    local at = tonumber(times[i] or nil)
    if at and at > (last[group] or 0) then last[group] = at end
    -- A peer of which nothing is known any more gets the benefit of the doubt.
    times[i] = at and now - at > most and places[i] ~= sign and at
    if not times[i] then alive[group] = true end
  end
  for i = 1, #places do
    local group, most = peers[places[i]][2], tonumber(peers[places[i]][3])
    if times[i] and alive[group] then
      noted[group] = noted[group] or again(group)
      if now - noted[group] <= most then
        times[i] = false
      elseif now - last[group] > most and times[i] >= noted[group] then
        -- One that has not spoken since the last time that this was noted is not spared again.
        if sign then redis.call('HSET', heard, 'again:' .. group, string.format('%.0f', now)) end
        times[i] = false
      end
    end
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
