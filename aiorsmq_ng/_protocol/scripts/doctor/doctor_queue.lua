-- Examine the keys of one queue as such, not its messages, and repair them.
-- KEYS: index, zset, hash.
-- ARGV: name, 1 = repair or 0 = only report.
-- Returns: {1 its messages can be examined or 0 not, number of ids, number of fields, vt, delay ('' if absent), then per
--   finding: what is wrong, 1 repaired or 0 not, details}. Findings: 'wrong_type' (a key, also a side key; never repaired), 'not_a_queue' (keys that
--   look like those of another program; never repaired), 'other_format' (a queue of rbmq, or one in microseconds; never
--   repaired, and its messages are not examined), 'vacant' (listed, but no key exists: removed from the list), 'headless'
--   (ids without a hash; not repaired here), 'ghost' (missing attributes: completed with RSMQ's defaults, and listed),
--   'bad_number' (a field: set to a default), 'unlisted' (listed), 'moved' (messages that readers hold outside of the queue;
--   nothing to repair).
-- Errors: none.
-- Cost: O(1).
-- @include clock
-- @include number
-- @include fill_attributes
-- @include allow_writes_when_full
local index, zset, hash, name, repair = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2] == '1'
local now, seconds = server_time()
local reply = {0, 0, 0, '', ''}
local function find(kind, repaired, what)
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3] = kind, repaired and 1 or 0, what
end
local function type_of(key, call)
  local answer = (call or redis.call)('TYPE', key)
  return type(answer) == 'table' and answer.ok or answer
end
local types = {type_of(index), type_of(zset), type_of(hash)}
-- A queue of rbmq has the same sorted set and list, but keeps its messages elsewhere, and its times, as some
-- builds of rsmq_async do, in microseconds. It is in use: what looks like damage is none.
local function other_format()
  for _, tail in ipairs({':cfg', ':msg'}) do
    -- pcall: a user with rights on RSMQ's own keys only may not look.
    if type_of(zset .. tail, redis.pcall) == 'hash' then return zset .. tail end
  end
  if types[2] ~= 'zset' then return nil end
  for _, place in ipairs({0, -1}) do
    local score = tonumber(redis.call('ZRANGE', zset, place, place, 'WITHSCORES')[2])
    -- Within a year of now.
    if score and math.abs(score - 1000 * now) < 31622400000000 then return zset end
  end
end
local other = other_format()
if other then
  find('other_format', false, other)
  return reply
end
local can_list = types[1] == 'set' or types[1] == 'none'
if not can_list then find('wrong_type', false, index .. ' is not a set') end
local ids, fields = types[2] ~= 'none', types[3] ~= 'none'
local listed = types[1] == 'set' and redis.call('SISMEMBER', index, name) == 1
if not (ids or fields) then
  if listed then
    if repair then redis.call('SREM', index, name) end
    find('vacant', repair, '')
  end
  return reply
end
local odd = false
for i, expected in pairs({[2] = 'zset', [3] = 'hash'}) do
  if types[i] ~= 'none' and types[i] ~= expected then
    odd = true
    -- One key alone that is not listed belongs to another program.
    local ours = listed or (ids and fields)
    find(ours and 'wrong_type' or 'not_a_queue', false,
      ours and KEYS[i] .. ' is not a ' .. expected or KEYS[i])
  end
end
if odd then return reply end

-- True if keys that are not listed seem to belong to another program with the same prefix.
local function strange()
  if listed or fields then return false end
  local members = redis.call('ZRANGE', zset, 0, 99)
  for i = 1, #members do
    if #members[i] ~= 32 or string.find(members[i], '[^%w]')
      or string.find(string.sub(members[i], 1, 10), '[^0-9a-z]') then return true end
    local us = tonumber(string.sub(members[i], 1, 5), 36) * 60466176
    if us < 1000000000000000 or us / 1000000 > seconds + 31622400 then return true end
  end
  return false
end
local stored = redis.call('HMGET', hash,
  'vt', 'delay', 'maxsize', 'totalrecv', 'totalsent', 'created', 'modified')
local known = false
for i = 1, 7 do known = known or stored[i] end
if strange() or not (known or listed or ids) then
  find('not_a_queue', false, ids and zset or hash)
  return reply
end
reply[1], reply[2], reply[3] = 1, redis.call('ZCARD', zset), redis.call('HLEN', hash)
for tail, expected in pairs({deliveries = 'hash', consumers = 'hash', headers = 'hash', waiters = 'zset'}) do
  local key = zset .. ':ng:' .. tail
  -- pcall: a user with rights on RSMQ's own keys only may not look.
  local stored = type_of(key, redis.pcall)
  if type(stored) == 'string' and stored ~= 'none' and stored ~= expected then
    find('wrong_type', false, key .. ' is not a ' .. expected)
  end
end
-- pcall: as above.
local moved, held = redis.pcall('HGETALL', zset .. ':ng:moved'), {}
for i = 1, moved.err and 0 or #moved, 2 do
  local ledger = string.match(moved[i], ':ng:claim:(.*):%d+$') or moved[i]
  held[ledger] = (held[ledger] or 0) + (tonumber(moved[i + 1]) or 0)
end
for ledger, count in pairs(held) do find('moved', false, string.format('%.0f in ledger %s', count, ledger)) end
if not fields then
  find('headless', false, '')
  return reply
end

if repair then allow_writes_when_full(hash) end
local DEFAULTS, missing = {'30', '0', '65536'}, {}
for i, attribute in ipairs({'vt', 'delay', 'maxsize'}) do
  if not stored[i] then missing[#missing + 1] = attribute end
end
if #missing > 0 then
  if repair then
    fill_attributes(hash, DEFAULTS[1], DEFAULTS[2], DEFAULTS[3], seconds)
    if can_list then redis.call('SADD', index, name) end
  end
  find('ghost', repair, table.concat(missing, ', '))
end

local MAX_SECONDS, LARGEST = 9999999, 536870912
local function fit_seconds(value)
  -- Some clients store milliseconds; a person must decide about that.
  return value >= 0 and (value <= MAX_SECONDS or (value % 1000 == 0 and value / 1000 <= MAX_SECONDS))
end
local function fit_size(value) return value == -1 or (value > 0 and value <= LARGEST) end
local function fit_count(value) return value >= 0 and value % 1 == 0 end
local function fit_time(value) return value >= 0 end
local function count(default)
  return function(value)
    return string.format('%.0f', value and value >= 0 and math.floor(value) or default)
  end
end
local RULES = {
  {'vt', fit_seconds, DEFAULTS[1]}, {'delay', fit_seconds, DEFAULTS[2]},
  {'maxsize', fit_size, DEFAULTS[3]}, {'totalrecv', fit_count, count(0)},
  {'totalsent', fit_count, count(reply[2])}, {'created', fit_time, seconds},
  {'modified', fit_time, seconds},
}
for i, rule in ipairs(RULES) do
  local field, fits, sane = rule[1], rule[2], rule[3]
  local value = number(stored[i])
  if stored[i] and not (value and fits(value)) then
    if type(sane) == 'function' then sane = sane(value) end
    if repair then redis.call('HSET', hash, field, sane) end
    find('bad_number', repair, field)
  elseif i <= 2 and stored[i] then
    reply[3 + i] = stored[i]
  end
end
if #missing == 0 and not listed and can_list then
  if repair then redis.call('SADD', index, name) end
  find('unlisted', repair, '')
end
return reply
