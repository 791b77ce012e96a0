-- Examine one page of a queue's ids. Changes nothing.
-- KEYS: zset, hash.
-- ARGV: cursor ('0' = from the start), how many ids, max_hidden (ms, -1 = none).
-- Returns: {next cursor ('0' = this was the last page), ids examined, {ids to examine with doctor_messages}, {number of
--   'long_hidden' ones, up to 3 of them}, {number of 'sent_in_future' ones, up to 3}}.
-- Errors: none.
-- Cost: O(ids examined); ZSCAN keeps its place while the queue changes.
-- @include clock
-- @include symptoms
-- @include is_id
local zset, hash = KEYS[1], KEYS[2]
local now, usual_ms = server_time(), usual_wait_ms(hash)
local max_hidden_ms = tonumber(ARGV[3])
local page = redis.call('ZSCAN', zset, ARGV[1], 'COUNT', ARGV[2])
local rows, suspects = page[2], {}
local reported = {long_hidden = {0}, sent_in_future = {0}}
-- In pages, because unpack() has room for about 7900 values.
for from = 1, #rows, 2000 do
  local ids, scores = {}, {}
  for i = from, math.min(#rows, from + 1999), 2 do
    ids[#ids + 1] = rows[i]
    scores[#scores + 1] = score_of(rows[i + 1])
  end
  local received = receives(hash, ids)
  for i = 1, #ids do
    if not is_id(ids[i]) or redis.call('HEXISTS', hash, ids[i]) == 0 then
      suspects[#suspects + 1] = ids[i]
    else
      local found = symptom(ids[i], scores[i], received[2 * i - 1], received[2 * i], max_hidden_ms, usual_ms, now)
      local list = reported[found]
      if list then
        list[1] = list[1] + 1
        if #list < 4 then list[#list + 1] = ids[i] end
      elseif found then
        suspects[#suspects + 1] = ids[i]
      end
    end
  end
end
return {page[1], #rows / 2, suspects, reported.long_hidden, reported.sent_in_future}
