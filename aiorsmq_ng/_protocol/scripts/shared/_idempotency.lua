-- Idempotency of calls: what the server remembers of the last call of a series, so that a call whose reply was
-- lost can be repeated.
--
-- Theory of operation. A client numbers its calls. Calls of one series follow each other: the client begins a
-- call only after the one before is settled. A call is made in attempts 1, 2, 3, ... until one is answered. The
-- memory is one string, "call attempt outcome", with a TTL of 10 minutes.
-- Rule 1. An attempt that finds an outcome of its own call by an earlier attempt returns that outcome and
--   changes nothing.
-- Rule 2. An attempt that finds a later call, or a later attempt of its own call, is late: a slow network
--   delivered it after the client gave it up. It changes nothing, and its reply reaches no caller.
-- Rule 3. Attempt 0 is a recall: the caller was cancelled. It undoes what an earlier attempt took, and is
--   remembered as attempt 999999, so every attempt that still arrives is late by rule 2.
-- Rule 4. A call that changed nothing is remembered only if an earlier attempt may still arrive, i.e. not by
--   attempt 1. This keeps an empty receive free of writes.
-- send and publish remember more compactly: see _replay_send.lua. visibility repeats its work: see there.
--
-- memory: the key; call_number, attempt: ARGV[1] and ARGV[2], as text.
-- remember(memory, call_number, attempt, text) stores the outcome of a call.
-- forget(memory, call_number, attempt) remembers that the call did nothing.
-- recall(memory, call_number, attempt) -> the outcome of an earlier attempt, nil if the call has not run, '' if
--   this attempt is late.
-- @include side_key
local function remember(memory, call_number, attempt, text)
  local seen = tonumber(attempt) > 0 and attempt or '999999'
  redis.call('SET', memory, call_number .. ' ' .. seen .. ' ' .. text, 'PX', 600000)
end
local function forget(memory, call_number, attempt)
  -- A full server refuses SET as the first write of a script, and accepts it after DEL.
  redis.call('DEL', memory)
  remember(memory, call_number, attempt, '')
end
local function recall(memory, call_number, attempt)
  local last, seen, text = string.match(call_side('GET', memory) or '', '^(%d+) (%d+) (.*)$')
  if not last then return nil end
  local newest, number, try = tonumber(last), tonumber(call_number), tonumber(attempt)
  if newest < number then return nil end
  if newest > number or (try > 0 and try <= tonumber(seen)) then return '' end
  return text
end
