-- What the server remembers of the last call of a series, so that a call whose reply was lost can be
-- repeated. A series never begins a call before the one before is settled.
-- Reads: KEYS[#KEYS] (the series' memory), ARGV[1] (number of the call in its series), ARGV[2] (number of
--   the attempt; 0 = recall: take nothing new, give back what an earlier attempt took).
-- Defines: again (not the first attempt); remember(text); forget() remembers a call that did nothing;
--   recall() -> what was remembered of this call, nil if it has not run, '' if this attempt comes late: a
--   later attempt, a recall or a later call of the series was there before, and nobody waits for it.
local memory, call_number, attempt = KEYS[#KEYS], tonumber(ARGV[1]), tonumber(ARGV[2])
local again = attempt ~= 1
local function remember(text)
  local seen = attempt > 0 and ARGV[2] or '999999'
  redis.call('SET', memory, ARGV[1] .. ' ' .. seen .. ' ' .. text, 'PX', 600000)
end
local function forget()
  -- A full server refuses SET as a script's first write, and takes it after this one.
  redis.call('DEL', memory)
  remember('')
end
local function recall()
  local last, seen, text = string.match(redis.call('GET', memory) or '', '^(%d+) (%d+) (.*)$')
  last = tonumber(last or -1)
  if last < call_number then return nil end
  if last > call_number or (attempt > 0 and attempt <= tonumber(seen)) then return '' end
  return text
end
