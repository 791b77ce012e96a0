-- Examine one page of the fields of a queue's hash. Changes nothing.
-- KEYS: zset, hash.
-- ARGV: cursor ('0' = from the start), how many fields, 1 = leave bodies out if the server can, how many fields if it cannot
--   (before Redis 7.4 a scan reads the bodies too).
-- Returns: {next cursor ('0' = this was the last page), fields examined, 1 bodies were left out or 0 not, bytes read, {ids
--   to examine with doctor_messages}, {number of unknown fields, up to 3 of them}}.
-- Errors: none.
-- Cost: O(fields examined); HSCAN keeps its place while the queue changes.
-- @include queue_fields
local zset, hash = KEYS[1], KEYS[2]
local page, step = nil, 1
if ARGV[3] == '1' then
  page = redis.pcall('HSCAN', hash, ARGV[1], 'COUNT', ARGV[2], 'NOVALUES')
  if page.err then page = nil end
end
if not page then
  page, step = redis.call('HSCAN', hash, ARGV[1], 'COUNT', ARGV[4]), 2
end
local TAILS, own = {rc = 1, fr = 1, meta = 1}, {}
for i = 1, #QUEUE_FIELDS do own[QUEUE_FIELDS[i]] = true end
local rows, bytes, names, owners, seen = page[2], 0, {}, {}, {}
for i = 1, #rows, step do
  local name = rows[i]
  bytes = bytes + #name + (step == 2 and #rows[i + 1] or 0)
  local id, tail = string.match(name, '^(%w+):(%a+)$')
  if id and TAILS[tail] and #id >= 20 and #id <= 64 then
    if not seen[id] then
      seen[id] = true
      owners[#owners + 1] = id
    end
  elseif not own[name] then
    names[#names + 1] = name
  end
end
local suspects, unknown = {}, {0}
-- A name that the sorted set holds is a message, also if it looks like something else: doctor_ids examines it.
local function strangers(list)
  local found = {}
  for from = 1, #list, 1000 do
    local upto = math.min(#list, from + 999)
    local scores = redis.call('ZMSCORE', zset, unpack(list, from, upto))
    for i = from, upto do
      if not scores[i - from + 1] then found[#found + 1] = list[i] end
    end
  end
  return found
end
for _, name in ipairs(strangers(names)) do
  if #name == 32 and string.match(name, '^%w+$') then
    suspects[#suspects + 1] = name
  else
    unknown[1] = unknown[1] + 1
    if #unknown < 4 then unknown[#unknown + 1] = name end
  end
end
for _, id in ipairs(strangers(owners)) do
  if redis.call('HEXISTS', hash, id) == 0 then suspects[#suspects + 1] = id end
end
return {page[1], #rows / step, step == 1 and 1 or 0, bytes, suspects, unknown}
