-- Waiters that are called when a message is there for them: one waiter per message.
-- The side key ng:waiters holds the waiters of a queue; score = epoch ms at which each looks for messages by
-- itself, a promise that _promise.lua made for it. A waiter is called by a publication on a channel of its own
-- that says in how many ms it shall look, and its score becomes that time. So a score of now or a little
-- earlier is a waiter on its way; a moment later it counts as dead or stuck, and is forgotten.
-- Reads: now, micros. Defines: MOMENT_MS, SLACK_MS, waiters_of(zset), between(); rouse(zset, due) calls as many waiters as there
--   are visible messages without a waiter on its way, and sees that one more looks a moment later, should one
--   not come. If nothing is visible before due (epoch ms, nil = ask the queue), it sees that one looks then.
-- Nothing depends on it but speed, so no failure stands in the way. A write may be refused every time it is
-- tried, so every loop ends by a count.
local MOMENT_MS, SLACK_MS = 100, 5
local function waiters_of(zset) return zset .. ':ng:waiters' end
-- Members with a score from..upto, the highest first. Not ZRANGEBYSCORE: who may only send must not have it.
local function between(key, from, upto, skip, most)
  if type(from) == 'number' then from = string.format('%.0f', from) end
  local found = redis.pcall('ZREVRANGEBYSCORE', key, upto, from, 'LIMIT', skip, most)
  return found.err and {} or found
end
local function rouse(zset, due)
  local waiters = waiters_of(zset)
  local some = redis.pcall('ZCARD', waiters)
  if type(some) ~= 'number' or some == 0 then return end
  local function ask(...)
    local reply = redis.pcall(...)
    return not (type(reply) == 'table' and reply.err) and reply or nil
  end
  -- True: it was called; false: it is gone; nil: it cannot be called, or that cannot be noted, so end here.
  local function call(waiter, at)
    local heard = ask('PUBLISH', zset .. ':ng:wake:' .. waiter, string.format('%.0f', at - now))
    if not heard then return nil end
    -- In a cluster (where keys have a hash tag) subscribers at other nodes are not counted.
    local gone = heard == 0 and not string.find(zset, '{', 1, true)
    if not ask('ZADD', waiters, gone and 0 or string.format('%.0f', at), waiter) then return nil end
    return not gone
  end
  -- See that a waiter looks between two times: one that does so anyway, or the one that would look last.
  local function cover(from, upto, at)
    if between(waiters, from, upto, 0, 1)[1] then return end
    for _ = 1, some do
      local last = between(waiters, string.format('(%.0f', upto), '+inf', 0, 1)[1]
      if not last or call(last, at) ~= false then return end
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
    -- Most leases never end, so one look for all that end within a moment must do.
    cover(due, due + (leased and MOMENT_MS or SLACK_MS), due)
    if not leased then cover(due + SLACK_MS + 1, due + SLACK_MS + MOMENT_MS, due + MOMENT_MS) end
    return
  end
  -- Not ZCOUNT, which is a right of those who look into queues. Few are coming at a time, and of the messages
  -- only those are read for which a waiter is called.
  local coming = #between(waiters, '-inf', now, 0, some)
  local idle = some - coming
  local missing = #between(zset, '-inf', now, coming, idle)
  while missing > 0 and idle > 0 do
    -- Any of them, so that the work is spread.
    local skip = idle > missing and micros % (idle - missing + 1) or 0
    local chosen = between(waiters, string.format('(%.0f', now), '+inf', skip, missing)
    if #chosen == 0 then return end
    for i = 1, #chosen do
      local called = call(chosen[i], now)
      if called == nil then return end
      if called then missing = missing - 1 end
      idle = idle - 1
    end
  end
  cover(now + 1, now + MOMENT_MS, now + MOMENT_MS)
end
