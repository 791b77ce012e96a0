-- Signs of life of peers. Those that have copies of their own are judged by a clock of their consumer. It
-- runs while any of them is heard of: a time without a sign of any counts for a third of the silence allowed at
-- most, so no peer looks silent because the server, or all of them, were away.
-- Reads: heard, now. Defines: tick(consumer, queue, silence) notes that a peer with copies of its own is
--   alive -> whether it is time to look for silent ones, ms since the last sign of any;
--   hear(field, queue, silence) notes the same of one that shares a queue; if it is a new one, others of
--   which nothing was heard for twice the silence (ms) are forgotten.
local function tick(consumer, queue, silence)
  local note = 'clock:' .. consumer
  local before, last = string.match(redis.call('HGET', heard, note) or '', '^(%d+) (%d+)$')
  before, last = tonumber(before or now), tonumber(last or now)
  local gap = math.max(0, now - last)
  local clock = before + math.ceil(math.min(gap, silence / 3))
  local sign = string.format('%.0f %.0f', clock, now)
  redis.call('HSET', heard, note, sign, queue, sign)
  return math.floor(before * 10 / silence) < math.floor(clock * 10 / silence), gap
end
local function hear(field, queue, silence)
  if redis.call('HSET', heard, field, string.format('%.0f', now)) == 0 then return end
  local all, start = redis.call('HGETALL', heard), queue .. ' '
  for i = 1, #all, 2 do
    local shares = string.sub(all[i], 1, #start) == start
    if shares and now - (tonumber(all[i + 1]) or 0) > 2 * silence then redis.call('HDEL', heard, all[i]) end
  end
end
