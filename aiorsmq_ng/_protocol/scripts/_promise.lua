-- When a waiter that found nothing looks again by itself. See _rouse.lua.
-- Reads: now, micros, MOMENT_MS, SLACK_MS, waiters_of, between. Defines: promise(zset, waiter, pause_ms, cap_ms, hint)
--   -> ms after which it shall look, and notes it; hint: ms until the next message is visible, or -1.
--   fulfil(zset, waiter) forgets a waiter that came and has what it came for.
-- One look, by any waiter, is enough: a waiter looks after its own pause only if no other one does by then,
-- and else after cap_ms at most. The same goes for the time at which the next message is due, with a second
-- waiter a moment later, should the first not come.
local function promise(zset, waiter, pause_ms, cap_ms, hint)
  local waiters = waiters_of(zset)
  -- By another one: what this waiter has promised before ends now.
  local function covered(from, upto)
    local found = between(waiters, from, upto, 0, 2)
    return found[1] ~= waiter and found[1] or found[2]
  end
  if hint == 0 then return 0 end
  -- Little chance, so that the latest promise is that of a waiter who was heard of not long ago.
  local latest = math.floor(0.9 * cap_ms)
  local at, due = now + math.min(pause_ms, latest), now + hint
  if covered(now + 1, at) then
    at = now + latest + math.floor(math.min(0.1 * cap_ms, 500) * (micros % 1000) / 1000)
  end
  if hint > 0 and due < at then
    if not covered(due, due + SLACK_MS) then
      at = due
    elseif not covered(due + SLACK_MS + 1, due + SLACK_MS + MOMENT_MS) then
      at = math.min(at, due + MOMENT_MS)
    end
  end
  local noted = redis.pcall('ZADD', waiters, string.format('%.0f', at), waiter)
  if type(noted) ~= 'number' then return hint > 0 and math.min(hint, pause_ms) or pause_ms end
  -- For as long as any of them is patient, not only this one.
  local last = redis.pcall('ZREVRANGEBYSCORE', waiters, '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local rest = math.max(cap_ms, (tonumber(last[2]) or 0) - now)
  redis.pcall('EXPIRE', waiters, string.format('%.0f', math.ceil(rest / 1000) + 60))
  return at - now
end
local function fulfil(zset, waiter)
  local at = redis.pcall('ZSCORE', waiters_of(zset), waiter)
  if type(at) == 'string' and tonumber(at) <= now then redis.pcall('ZREM', waiters_of(zset), waiter) end
end
