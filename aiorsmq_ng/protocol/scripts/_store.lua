-- Store rows of a bulk job. A row is (id, delay in ms or -1, body); an id of 22 characters is only
-- the random part, a longer one is kept, and is left alone if the queue has it already.
-- Reads: zset, hash, now, queue_delay_ms, sent, id_prefix. Defines: store(rows, from, upto, channel)
--   -> number stored, number that the queue had already. rows: flat list, three values per row.
local function store(rows, from, upto, channel)
  local scores, bodies, size, stored, existing = {}, {}, 0, 0, 0
  local delay, score
  local function flush()
    if size > 0 then
      redis.call('ZADD', zset, unpack(scores, 1, size))
      redis.call('HSET', hash, unpack(bodies, 1, size))
      size = 0
    end
  end
  for at = from, upto, 3 do
    local id, known = rows[at], false
    if #id == 22 then
      id = id_prefix() .. id
    else
      known = redis.call('ZSCORE', zset, id)
    end
    if known then
      existing = existing + 1
    else
      -- Most rows of a job have the same delay.
      if rows[at + 1] ~= delay then
        delay = rows[at + 1]
        local delay_ms = tonumber(delay)
        if delay_ms < 0 then delay_ms = queue_delay_ms end
        score = string.format('%.0f', now + delay_ms)
      end
      scores[size + 1], scores[size + 2] = score, id
      bodies[size + 1], bodies[size + 2] = id, rows[at + 2]
      size, stored = size + 2, stored + 1
      -- unpack() has room for some 7900 values.
      if size >= 4000 then flush() end
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
