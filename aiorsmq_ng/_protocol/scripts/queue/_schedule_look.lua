-- When a waiter that found no message looks again by itself. See _wake_waiters.lua.
-- schedule_look(zset, waiter, pause_ms, cap_ms, hint, now, micros) -> ms after which the waiter looks, and stores that
--   time. pause_ms: the pause that the waiter would choose by itself; cap_ms: the longest pause; hint: ms until the next
--   message is visible, or -1.
-- clear_waiter(zset, waiter, now) removes a waiter that came as scheduled and got messages.
-- One look, by any waiter, is enough: a waiter looks after its own pause only if no other one does by then, and
-- else after cap_ms at most. The same holds for the time at which the next message is due, with a second waiter a
-- moment later, in case the first does not come.
-- @include wake_waiters
local function schedule_look(zset, waiter, pause_ms, cap_ms, hint, now, micros)
  local waiters = waiters_of(zset)
  -- By another waiter: the present call replaces what this one had scheduled.
  local function covered(from, upto)
    local found = members_between(waiters, from, upto, 0, 2)
    return found[1] ~= waiter and found[1] or found[2]
  end
  if hint == 0 then return 0 end
  -- Spread a little, so that the waiter with the latest time is one that was heard of recently.
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
  local stored = redis.pcall('ZADD', waiters, string.format('%.0f', at), waiter)
  if type(stored) ~= 'number' then return hint > 0 and math.min(hint, pause_ms) or pause_ms end
  -- The key lives as long as the most patient of its waiters needs it.
  local last = redis.pcall('ZREVRANGEBYSCORE', waiters, '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local rest = math.max(cap_ms, (tonumber(last[2]) or 0) - now)
  redis.pcall('EXPIRE', waiters, string.format('%.0f', math.ceil(rest / 1000) + 60))
  return at - now
end
local function clear_waiter(zset, waiter, now)
  local at = redis.pcall('ZSCORE', waiters_of(zset), waiter)
  if type(at) == 'string' and tonumber(at) <= now then redis.pcall('ZREM', waiters_of(zset), waiter) end
end
