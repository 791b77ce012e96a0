-- Store rows of a bulk job. A row is (id, delay in ms or -1, body); an id of 22 characters is only
-- the random part, a longer one is kept, and is left alone if the queue has it already.
-- Reads: zset, hash, now, queue_delay_ms, sent, id_prefix. Defines: store(rows, from, upto, channel)
--   -> number stored, number that the queue had already. rows: flat list, three values per row.
local function store(rows, from, upto, channel)
  local scores, bodies, stored, existing = {}, {}, 0, 0
  local function flush()
    if #scores > 0 then
      redis.call('ZADD', zset, unpack(scores))
      redis.call('HSET', hash, unpack(bodies))
      scores, bodies = {}, {}
    end
  end
  for at = from, upto, 3 do
    local id, delay_ms, known = rows[at], tonumber(rows[at + 1]), false
    if #id == 22 then
      id = id_prefix() .. id
    else
      known = redis.call('ZSCORE', zset, id)
    end
    if known then
      existing = existing + 1
    else
      if delay_ms < 0 then delay_ms = queue_delay_ms end
      local size = #scores
      scores[size + 1], scores[size + 2] = string.format('%.0f', now + delay_ms), id
      bodies[size + 1], bodies[size + 2] = id, rows[at + 2]
      stored = stored + 1
      -- unpack() has room for some 7900 values.
      if size >= 3998 then flush() end
    end
  end
  flush()
  if stored > 0 then
    redis.call('HSET', hash, 'totalsent', string.format('%.0f', sent + stored))
    -- A wake-up is a hint: a user who may not publish may still send.
    redis.pcall('PUBLISH', channel, redis.call('ZCARD', zset))
  end
  return stored, existing
end
