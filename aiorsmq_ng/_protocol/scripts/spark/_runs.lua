-- Runs: how a claim lists its messages. The claim is a sorted set of runs; the score of a run is the number of its first
-- message in the claim. A run is a text: rc, fr and the length of an id, separated by spaces, a line feed, then the
-- ids without anything between them; all of these messages have that rc and fr. In mode move a run is one message: its
-- body follows the id, and then, if it was received before, its delivery note, whose length is a fourth number.
-- split_run(run) -> rc, fr, length of an id, place of the first id, place of the last byte of a body.
-- runs_of(ids, rcs, frs, count) -> list of runs, list of the number of messages in each.
-- messages_of(claim, from, upto) -> the messages with these numbers: ids, rcs, frs, the list of their runs. Not in mode move.
-- moved_messages(claim, from, upto, most, maxsize) -> in mode move, the messages with these numbers up to the one with
--   which they have most bytes: ids, rcs, frs, bodies.
-- first_runs(claim, most, moved_bytes) -> ids, rcs, frs of the first runs that have at least this number of messages, the
--   number of these runs; in mode move (moved_bytes is given) bodies and delivery notes, up to the message that
--   reaches this number of bytes.
-- @include bodies
local function split_run(run)
  local rc, fr, width, tail, at = string.match(run, '^(%S+) (%S+) (%d+) ?(%d*)\n()')
  return rc, fr, tonumber(width), at, #run - (tonumber(tail) or 0)
end
local function runs_of(ids, rcs, frs, count)
  local runs, sizes, from = {}, {}, 1
  while from <= count do
    local rc, fr, width, upto = rcs[from], frs[from], #ids[from], from
    while upto < count and rcs[upto + 1] == rc and frs[upto + 1] == fr and #ids[upto + 1] == width do
      upto = upto + 1
    end
    runs[#runs + 1] = rc .. ' ' .. fr .. ' ' .. width .. '\n' .. table.concat(ids, '', from, upto)
    sizes[#sizes + 1], from = upto - from + 1, upto + 1
  end
  return runs, sizes
end
local function messages_of(claim, from, upto)
  local ids, rcs, frs, runs, size = {}, {}, {}, {}, 0
  local found = redis.call('ZREVRANGEBYSCORE', claim, from, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local more = redis.call('ZRANGEBYSCORE', claim, '(' .. from, '(' .. upto, 'WITHSCORES')
  for i = 1, #more do found[#found + 1] = more[i] end
  for i = 1, #found, 2 do
    local run, first = found[i], tonumber(found[i + 1])
    local rc, fr, width, at = split_run(run)
    local low = math.max(0, from - first)
    local high = math.min((#run - at + 1) / width, upto - first)
    for n = low, high - 1 do
      size = size + 1
      ids[size] = string.sub(run, at + n * width, at + n * width + width - 1)
      rcs[size], frs[size] = rc, fr
    end
    if high > low then
      if high - low < (#run - at + 1) / width then
        run = string.sub(run, 1, at - 1) .. string.sub(run, at + low * width, at + high * width - 1)
      end
      runs[#runs + 1] = run
    end
  end
  return ids, rcs, frs, runs
end
local function moved_messages(claim, from, upto, most, maxsize)
  local ids, rcs, frs, bodies, size, left = {}, {}, {}, {}, 0, most
  while from + size < upto and left > 0 do
    local first = from + size
    local some = redis.call('ZRANGEBYSCORE', claim, first, '(' .. math.min(upto, first + at_once(left, maxsize)))
    if #some == 0 then break end
    for i = 1, #some do
      local rc, fr, width, at, last = split_run(some[i])
      size = size + 1
      ids[size], rcs[size], frs[size] = string.sub(some[i], at, at + width - 1), rc, fr
      bodies[size] = string.sub(some[i], at + width, last)
      left = left - #bodies[size]
    end
  end
  return ids, rcs, frs, bodies
end
local function first_runs(claim, most, moved_bytes)
  local ids, rcs, frs, bodies, notes, size, taken, left = {}, {}, {}, {}, {}, 0, 0, moved_bytes or 1
  while size < most and left > 0 do
    local run = redis.call('ZRANGE', claim, taken, taken)[1]
    if not run then break end
    local rc, fr, width, at, body_end = split_run(run)
    taken = taken + 1
    local last = moved_bytes and at or #run
    for start = at, last, width do
      size = size + 1
      ids[size], rcs[size], frs[size] = string.sub(run, start, start + width - 1), rc, fr
    end
    if moved_bytes then
      bodies[size], notes[size] = string.sub(run, at + width, body_end), string.sub(run, body_end + 1)
      left = left - #bodies[size]
    end
  end
  return ids, rcs, frs, taken, bodies, notes
end
