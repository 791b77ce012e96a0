-- Waiters: clients that wait for a message of a queue. One waiter is woken per message, not all of them.
--
-- Theory of operation. The side key ng:waiters is a sorted set of the waiters of a queue. The score of a waiter is the
-- epoch ms at which it looks for messages by itself; _schedule_look.lua chooses that time. A script wakes a waiter by
-- publishing on the waiter's own channel in how many ms to look, and sets its score to that time.
-- Rule 1. A score of now, or up to MOMENT_MS earlier, is a waiter on its way. An older score is a waiter that is dead
--   or stuck: it is removed.
-- Rule 2. As many waiters are woken as there are visible messages without a waiter on its way, and one more is asked to
--   look MOMENT_MS later, in case one of these does not come.
-- Rule 3. If the next message is visible only later, one waiter looks at that time. For a message that was never
--   received a second one looks MOMENT_MS later. Most leases never expire, so one look is enough for a lease.
-- Rule 4. A waiter without a subscriber on its channel is gone: the next one is woken. In a cluster (keys have a hash
--   tag) a node does not count the subscribers of other nodes, so there every waiter is assumed to be there.
-- Rule 5. Correctness does not depend on waking: a waiter that is not woken looks by itself. So no failure
--   here fails a script. A server may refuse the same write every time, so every loop is bounded by a count.
-- Rule 6. Only commands that a sender may use: ZREVRANGEBYSCORE instead of ZRANGEBYSCORE and ZCOUNT.
--
-- waiters_of(zset) -> the side key.
-- members_between(key, from, upto, skip, most) -> members with a score from..upto, the highest score first.
-- wake_waiters(zset, now, micros, due) applies the rules. due: epoch ms at which the next message is visible, nil =
--   read it from the queue. micros: spreads the choice of waiters.
local MOMENT_MS, SLACK_MS = 100, 5
local function waiters_of(zset) return zset .. ':ng:waiters' end
local function members_between(key, from, upto, skip, most)
  if type(from) == 'number' then from = string.format('%.0f', from) end
  local found = redis.pcall('ZREVRANGEBYSCORE', key, upto, from, 'LIMIT', skip, most)
  return found.err and {} or found
end
local function wake_waiters(zset, now, micros, due)
  local waiters = waiters_of(zset)
  local some = redis.pcall('ZCARD', waiters)
  if type(some) ~= 'number' or some == 0 then return end
  local function ask(...)
    local reply = redis.pcall(...)
    return not (type(reply) == 'table' and reply.err) and reply or nil
  end
  -- True: it was woken; false: it is gone; nil: the server refuses, so the script stops waking.
  local function wake(waiter, at)
    local subscribers = ask('PUBLISH', zset .. ':ng:wake:' .. waiter, string.format('%.0f', at - now))
    if not subscribers then return nil end
    local gone = subscribers == 0 and not string.find(zset, '{', 1, true)
    if not ask('ZADD', waiters, gone and 0 or string.format('%.0f', at), waiter) then return nil end
    return not gone
  end
  -- Make sure that a waiter looks between two times: one that does so anyway, or the one that would look last.
  local function cover(from, upto, at)
    if members_between(waiters, from, upto, 0, 1)[1] then return end
    for _ = 1, some do
      local last = members_between(waiters, string.format('(%.0f', upto), '+inf', 0, 1)[1]
      if not last or wake(last, at) ~= false then return end
    end
  end
  local stale = ask('ZREMRANGEBYSCORE', waiters, '-inf', string.format('(%.0f', now - MOMENT_MS))
  if not stale then return end
  some = some - stale
  local leased = false
  if not due then
    local head = ask('ZRANGE', zset, 0, 0, 'WITHSCORES')
    if not head or not head[2] then return end
    due = math.ceil(tonumber(head[2]))
    leased = due > now and ask('HEXISTS', zset .. ':Q', head[1] .. ':rc') == 1
  end
  if due > now then
    cover(due, due + (leased and MOMENT_MS or SLACK_MS), due)
    if not leased then cover(due + SLACK_MS + 1, due + SLACK_MS + MOMENT_MS, due + MOMENT_MS) end
    return
  end
  -- Few waiters are on their way at a time, and only as many messages are read as waiters are idle.
  local coming = #members_between(waiters, '-inf', now, 0, some)
  local idle = some - coming
  local missing = #members_between(zset, '-inf', now, coming, idle)
  while missing > 0 and idle > 0 do
    -- Any of them, so that the work is spread.
    local skip = idle > missing and micros % (idle - missing + 1) or 0
    local chosen = members_between(waiters, string.format('(%.0f', now), '+inf', skip, missing)
    if #chosen == 0 then return end
    for i = 1, #chosen do
      local woken = wake(chosen[i], now)
      if woken == nil then return end
      if woken then missing = missing - 1 end
      idle = idle - 1
    end
  end
  cover(now + 1, now + MOMENT_MS, now + MOMENT_MS)
end
