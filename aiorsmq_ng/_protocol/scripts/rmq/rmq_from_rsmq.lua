-- Move ready messages of a queue of RSMQ to a queue of rmq, in order. Leased and delayed ones stay. Headers of a message
-- become headers of rmq: a signature and a line of JSON before the body, names written as Go does.
-- KEYS: zset, hash, deliveries, ready list, memory of the caller's series.
-- ARGV: call number, attempt (see _idempotency.lua), how many at most.
-- Returns: how many were moved, how many ids were looked at; to a repeated call what the first attempt did.
-- Errors: queueNotFound, queueCorrupt.
-- Cost: O(messages * log n); callers ask for at most 100 so that other clients can go on.
-- @include clock
-- @include read_queue
-- @include idempotency
-- @include ready_ids
-- @include headers
-- @include remove_messages
local function payload_of(text, body)
  local is_json, found = pcall(cjson.decode, text)
  if not is_json or type(found) ~= 'table' then return body end
  local lists = {}
  for name, value in pairs(found) do
    -- Another program has stored something else.
    if type(name) ~= 'string' or type(value) ~= 'string' then return body end
    name = string.gsub(name, '[^-]+', function(word)
      return string.upper(string.sub(word, 1, 1)) .. string.lower(string.sub(word, 2))
    end)
    local list = lists[name] or {}
    list[#list + 1], lists[name] = value, list
  end
  if not next(lists) then return body end
  return '\255\0\190\190J' .. cjson.encode(lists) .. '\n' .. body
end
local zset, hash, deliveries, ready, memory = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = server_time()
local before = recall(memory, ARGV[1], ARGV[2])
if before then
  local past_moved, past_seen = string.match(before, '^(%d+) (%d+)$')
  return {tonumber(past_moved) or 0, tonumber(past_seen) or 0}
end
local refusal = read_queue(zset, hash)
if refusal then return refusal end
redis.call('LLEN', ready)
local ids, moved, headers = ready_ids(zset, now, tonumber(ARGV[3])), 0, {}
local found = read_headers(zset, with_headers(ids))
for i = 1, #found, 2 do headers[found[i]] = found[i + 1] end
for i = 1, #ids do
  local body = redis.call('HGET', hash, ids[i])
  if body then
    redis.call('LPUSH', ready, headers[ids[i]] and payload_of(headers[ids[i]], body) or body)
    moved = moved + 1
  end
end
remove_messages(zset, hash, deliveries, ids)
if #ids > 0 or ARGV[2] ~= '1' then
  forget(memory, ARGV[1], ARGV[2])
  remember(memory, ARGV[1], ARGV[2], moved .. ' ' .. #ids)
end
return {moved, #ids}
