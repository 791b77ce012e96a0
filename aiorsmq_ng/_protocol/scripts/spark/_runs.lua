-- Runs: how a claim lists its messages. The claim is a sorted set of runs; the score of a run is the number of its first
-- message in the claim. A run is a text: rc, fr, the length of an id and a fourth value, separated by spaces, a line feed,
-- then the ids without anything between them. All of these messages have that rc and fr. The fourth value is 0, or the score
-- that the messages have under a lean lease, or in mode move the bytes of their bodies, which are in a list beside
-- the claim, in order. A moved message that was received before is a run of its own; its delivery note follows the id,
-- and the length of the note the fourth value.
-- A message of a claim that went to the dead-letter queue leaves a mark in the place of its id: an exclamation mark, and
-- its number in the claim, so that no two runs are the same text. No id begins with that character.
-- A part is (a part of) a run: {rc, fr, width, fourth (text), lean (true if its messages are under a lean lease), ids (text),
--   count, note, run (text), first (number of the run's first message), size (messages in the whole run), from (number of
--   the part's first message)}.
-- runs_of(ids, rcs, frs, fourths, notes, count) -> list of runs, list of the number of messages in each.
-- part_of(run, first, from, upto) -> the messages of a run with these numbers in the claim, or nil if there are none.
-- runs_between(claim, from, upto) -> the whole runs, as parts, that have messages with these numbers.
-- parts_between(claim, from, upto) -> the messages of the claim with these numbers, and how many these are.
-- front_parts(claim, most) -> the first runs, as parts, that have at least this number of messages.
-- ids_of(part, ids) adds the ids of a part to a list.
-- marked_ids(parts) -> the ids that may have headers (_headers.lua), or nil.
-- is_mark(id) -> true if it is the mark of a message that was dead-lettered.
-- @include headers
local function runs_of(ids, rcs, frs, fourths, notes, count)
  local runs, sizes, from = {}, {}, 1
  while from <= count do
    local rc, fr, fourth, width, upto = rcs[from], frs[from], fourths[from], #ids[from], from
    while not notes[from] and upto < count and rcs[upto + 1] == rc and frs[upto + 1] == fr and fourths[upto + 1] == fourth
      and #ids[upto + 1] == width and not notes[upto + 1] do
      upto = upto + 1
    end
    local note = notes[from]
    runs[#runs + 1] = rc .. ' ' .. fr .. ' ' .. width .. ' ' .. fourth .. (note and ' ' .. #note or '') .. '\n'
      .. table.concat(ids, '', from, upto) .. (note or '')
    sizes[#sizes + 1], from = upto - from + 1, upto + 1
  end
  return runs, sizes
end
local function part_of(run, first, from, upto)
  local rc, fr, width, fourth, tail, at = string.match(run, '^(%S+) (%S+) (%d+) (%S+) ?(%d*)\n()')
  width, tail = tonumber(width), tonumber(tail) or 0
  local size = (#run - tail - at + 1) / width
  local low, high = math.max(0, from - first), math.min(size, upto - first)
  if high <= low then return nil end
  local ids = string.sub(run, at + low * width, at + high * width - 1)
  return {rc = rc, fr = fr, width = width, fourth = fourth, lean = string.find(fourth, '.', 1, true) ~= nil, ids = ids,
    count = high - low, note = tail > 0 and string.sub(run, -tail), first = first, size = size, from = first + low,
    run = high - low < size and string.sub(run, 1, at - 1) .. ids or run}
end
local function read_runs(claim, from, upto)
  local found = redis.call('ZREVRANGEBYSCORE', claim, from, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local more = redis.call('ZRANGEBYSCORE', claim, '(' .. from, '(' .. upto, 'WITHSCORES')
  for i = 1, #more do found[#found + 1] = more[i] end
  return found
end
local function runs_between(claim, from, upto)
  local found, parts = read_runs(claim, from, upto), {}
  for i = 1, #found, 2 do parts[#parts + 1] = part_of(found[i], tonumber(found[i + 1]), 0, math.huge) end
  return parts
end
local function parts_between(claim, from, upto)
  local found, parts, count = read_runs(claim, from, upto), {}, 0
  for i = 1, #found, 2 do
    local part = part_of(found[i], tonumber(found[i + 1]), from, upto)
    if part then parts[#parts + 1], count = part, count + part.count end
  end
  return parts, count
end
local function front_parts(claim, most)
  local parts, count = {}, 0
  while count < most do
    local found = redis.call('ZRANGE', claim, #parts, #parts, 'WITHSCORES')
    if #found == 0 then break end
    local part = part_of(found[1], tonumber(found[2]), 0, math.huge)
    parts[#parts + 1], count = part, count + part.count
  end
  return parts
end
local function ids_of(part, ids)
  local text, width, size = part.ids, part.width, #ids
  for n = 0, part.count - 1 do
    ids[size + n + 1] = string.sub(text, n * width + 1, n * width + width)
  end
end
local function marked_ids(parts)
  local found
  for _, part in ipairs(parts) do
    -- Few of all texts have these two characters anywhere, and of these one in 32 at the end of an id.
    local at = string.find(part.ids, HEADERS_MARK, 1, true)
    while at do
      if (at + 1) % part.width == 0 then
        found = found or {}
        found[#found + 1] = string.sub(part.ids, at + 2 - part.width, at + 1)
      end
      at = string.find(part.ids, HEADERS_MARK, at + 1, true)
    end
  end
  return found
end
local function is_mark(id) return string.byte(id) == 33 end
