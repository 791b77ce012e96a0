-- store_rows(queue, rows, from, upto, suffixes, delay) -> number stored, number that the queue had already.
--   Stores rows of a bulk job. rows: flat list, from and upto are places in it. A row is (suffix, delay in ms or -1, body),
--   or has = and an id in place of the random suffix: that id is kept, and the row is skipped if the queue has it
--   already. Headers may follow either (_row_headers.lua). With suffixes (the random parts of all ids in one text) a row is a body only, and delay holds for all.
--   queue: {zset, hash, channel, now, us (epoch microseconds), micros, delay_ms, sent}.
-- @include new_id
-- @include row_headers
-- @include wake_waiters
local function store_rows(queue, rows, from, upto, suffixes, delay)
  local zset, hash, now, next_us, due = queue.zset, queue.hash, queue.now, queue.us, math.huge
  local function score_of(delay_ms)
    delay_ms = tonumber(delay_ms)
    if delay_ms < 0 then delay_ms = queue.delay_ms end
    due = math.min(due, now + delay_ms)
    return string.format('%.0f', now + delay_ms)
  end
  local scores, bodies, size, stored, existing = {}, {}, 0, 0, 0
  local headers, longest_ms = {}, 0
  local score, width = suffixes and score_of(delay), suffixes and 1 or 3
  for at = from, upto, width do
    local id, body, known, text
    if suffixes then
      id, body = id_of(next_us, string.sub(suffixes, 22 * stored + 1, 22 * stored + 22)), rows[at]
      next_us = next_us + 1
    else
      id, text = split_headers(rows[at])
      body = rows[at + 2]
      if string.byte(id) == 61 then
        id = string.sub(id, 2)
        known = redis.call('ZSCORE', zset, id)
      else
        id = id_of(next_us, id)
        next_us = next_us + 1
      end
      -- Most rows of a job have the same delay.
      if rows[at + 1] ~= delay then
        delay = rows[at + 1]
        score = score_of(delay)
      end
    end
    if known then
      existing = existing + 1
    else
      scores[size + 1], scores[size + 2] = score, id
      bodies[size + 1], bodies[size + 2] = id, body
      if text then
        headers[#headers + 1], headers[#headers + 2] = id, text
        longest_ms = math.max(longest_ms, tonumber(score) - now)
      end
      size, stored = size + 2, stored + 1
    end
    -- unpack() has room for about 7900 values.
    if size >= 4000 or (size > 0 and at + width > upto) then
      redis.call('ZADD', zset, unpack(scores, 1, size))
      redis.call('HSET', hash, unpack(bodies, 1, size))
      size = 0
    end
  end
  store_headers(zset, headers, longest_ms)
  if stored > 0 then
    redis.call('HSET', hash, 'totalsent', string.format('%.0f', queue.sent + stored))
    -- A wake-up is a hint: a user without the right to publish may still send.
    redis.pcall('PUBLISH', queue.channel, redis.call('ZCARD', zset))
    wake_waiters(zset, now, queue.micros, due)
  end
  return stored, existing
end
