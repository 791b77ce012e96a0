-- Store rows of a bulk job. A row is (id, delay in ms or -1, body); an id of 22 characters is only
-- the random part, a longer one is kept, and is left alone if the queue has it already. Or a row is a body
-- only, and the random parts of all ids and one delay come beside.
-- Ids begin with consecutive microseconds as ten base36 digits, from now on.
-- Reads: zset, hash, seconds, micros, now, queue_delay_ms, sent, rouse. Defines: store(rows, from, upto, channel,
--   suffixes or nil, delay of all) -> number stored, number that the queue had already. rows: flat list.
local function store(rows, from, upto, channel, suffixes, delay)
  local digits, next_us, head, head_of = {}, seconds * 1000000 + micros, '', -1
  for i = 1, 36 do digits[i] = string.sub('0123456789abcdefghijklmnopqrstuvwxyz', i, i) end
  local function id_of(suffix)
    local last = next_us % 36
    local rest = (next_us - last) / 36
    next_us = next_us + 1
    if rest ~= head_of then
      head_of, head = rest, ''
      for _ = 1, 9 do
        local digit = rest % 36
        head, rest = digits[digit + 1] .. head, (rest - digit) / 36
      end
    end
    return head .. digits[last + 1] .. suffix
  end
  local due = math.huge
  local function score_of(delay_ms)
    delay_ms = tonumber(delay_ms)
    if delay_ms < 0 then delay_ms = queue_delay_ms end
    due = math.min(due, now + delay_ms)
    return string.format('%.0f', now + delay_ms)
  end
  local scores, bodies, size, stored, existing = {}, {}, 0, 0, 0
  local score = suffixes and score_of(delay)
  for at = from, upto, suffixes and 1 or 3 do
    local id, body, known
    if suffixes then
      id, body = id_of(string.sub(suffixes, 22 * stored + 1, 22 * stored + 22)), rows[at]
    else
      id, body = rows[at], rows[at + 2]
      if #id == 22 then id = id_of(id) else known = redis.call('ZSCORE', zset, id) end
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
      size, stored = size + 2, stored + 1
    end
    -- unpack() has room for some 7900 values.
    if size >= 4000 or (size > 0 and at + (suffixes and 1 or 3) > upto) then
      redis.call('ZADD', zset, unpack(scores, 1, size))
      redis.call('HSET', hash, unpack(bodies, 1, size))
      size = 0
    end
  end
  if stored > 0 then
    redis.call('HSET', hash, 'totalsent', string.format('%.0f', sent + stored))
    -- A wake-up is a hint: a user who may not publish may still send.
    redis.pcall('PUBLISH', channel, redis.call('ZCARD', zset))
    rouse(zset, due)
  end
  return stored, existing
end
