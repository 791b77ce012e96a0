-- Runs: how a claim lists its messages. A run is text: rc, fr and the length of an id, parted by
-- blanks, a line feed, then ids without anything between them; all of these messages have that rc and
-- fr. In mode move a run is one message, and its body follows the id; then, if it was received before, what is
-- known of its deliveries (_past.lua), whose length is a fourth number. The claim is a sorted set of
-- runs; the score is the number of a run's first message in the claim.
-- Defines: split(run) -> rc, fr, length of an id, place of the first one, place of the last byte of a body.
local function split(run)
  local rc, fr, width, tail, at = string.match(run, '^(%S+) (%S+) (%d+) ?(%d*)\n()')
  return rc, fr, tonumber(width), at, #run - (tonumber(tail) or 0)
end
-- Defines: runs_of(ids, rcs, frs, count) -> list of runs, list of the number of messages in each.
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
-- Defines: messages_of(claim, from, upto, moving) -> the messages with these numbers: ids, rcs, frs, and
--   in mode move bodies, else the list of their runs.
local function messages_of(claim, from, upto, moving)
  local ids, rcs, frs, others, size = {}, {}, {}, {}, 0
  local found = redis.call('ZREVRANGEBYSCORE', claim, from, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local more = redis.call('ZRANGEBYSCORE', claim, '(' .. from, '(' .. upto, 'WITHSCORES')
  for i = 1, #more do found[#found + 1] = more[i] end
  for i = 1, #found, 2 do
    local run, first = found[i], tonumber(found[i + 1])
    local rc, fr, width, at, last = split(run)
    if moving then
      size = size + 1
      ids[size], rcs[size], frs[size] = string.sub(run, at, at + width - 1), rc, fr
      others[size] = string.sub(run, at + width, last)
    else
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
        others[#others + 1] = run
      end
    end
  end
  return ids, rcs, frs, others
end
-- Defines: first_runs(claim, most) -> ids, rcs, frs and bodies ('' in mode lease) of the first runs that
--   have at least so many messages, number of these runs, in mode move what is known of their deliveries.
local function first_runs(claim, most, moving)
  local ids, rcs, frs, bodies, notes, size, taken = {}, {}, {}, {}, {}, 0, 0
  while size < most do
    local run = redis.call('ZRANGE', claim, taken, taken)[1]
    if not run then break end
    local rc, fr, width, at, body_end = split(run)
    taken = taken + 1
    local last = moving and at or #run
    for start = at, last, width do
      size = size + 1
      ids[size], rcs[size], frs[size] = string.sub(run, start, start + width - 1), rc, fr
    end
    if moving then bodies[size], notes[size] = string.sub(run, at + width, body_end), string.sub(run, body_end + 1) end
  end
  return ids, rcs, frs, bodies, taken, notes
end
