-- What the server remembers of the last call of a series, so that a call whose reply was lost can be
-- repeated. A series never begins a call before the one before is settled.
-- Reads: KEYS[#KEYS] (the series' memory), ARGV[1] (number of the call in its series), ARGV[2] (first:
--   first attempt; again: repeated; recall: take nothing new, tell what an earlier attempt did).
-- Defines: attempt; remember(text); forget() remembers a call that took nothing; recall() -> what was remembered of this call ('' if the series is
--   further on already: nobody waits for the reply), or nil if the call has not run.
local memory, call_number, attempt = KEYS[#KEYS], ARGV[1], ARGV[2]
local function remember(text)
  redis.call('SET', memory, call_number .. ' ' .. text, 'PX', 600000)
end
local function forget()
  -- A full server refuses SET as a script's first write, and takes it after this one.
  redis.call('DEL', memory)
  remember('')
end
local function recall()
  local known = redis.call('GET', memory)
  if not known then return nil end
  local last, text = string.match(known, '^(%d+) (.*)$')
  last = tonumber(last)
  if not last or last < tonumber(call_number) then return nil end
  return last == tonumber(call_number) and text or ''
end
