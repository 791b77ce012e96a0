-- Messages from one queue into another, with score, rc, fr, headers and delivery notes, so that their order stays and none
-- becomes a suspect. A message that the target has already is not stored twice.
-- A queue is a table {zset, hash, deliveries}. Into a queue without deliveries messages go as if never received.
-- delete_messages(from, ids).
-- transfer(from, to, ids, copy) moves messages, or copies them. A member that is no id is not stored in the target.
-- merge_queues(from, to, page) -> true if all messages are moved. A queue of any length is renamed into an empty one; a short one is moved in one step; of two long ones a page is moved per call, the oldest messages first.
-- @include queue_fields
-- @include delivery_notes
-- @include is_id
-- @include remove_messages
-- @include copy_headers
local function delete_messages(from, ids)
  for first = 1, #ids, 1000 do
    remove_messages(from[1], from[2], from[3], {unpack(ids, first, math.min(#ids, first + 999))})
  end
end
local function transfer(from, to, ids, copy)
  local moved = 0
  for first = 1, #ids, 1000 do
    local page, fields, scores, bodies, notes, stored = {}, {}, {}, {}, {}, {}
    for i = first, math.min(#ids, first + 999) do
      local id = ids[i]
      page[#page + 1] = id
      fields[#fields + 1] = id
      fields[#fields + 1] = id .. ':rc'
      fields[#fields + 1] = id .. ':fr'
    end
    local visible = redis.call('ZMSCORE', from[1], unpack(page))
    local known = redis.call('ZMSCORE', to[1], unpack(page))
    local values, noted = redis.call('HMGET', from[2], unpack(fields)), from[3] and read_notes(from[3], page) or {}
    for i = 1, #page do
      local body = values[3 * i - 2]
      if body and visible[i] and not known[i] and is_id(page[i]) then
        scores[#scores + 1], scores[#scores + 2] = visible[i], page[i]
        for part = 0, to[3] and 2 or 0 do
          if values[3 * i - 2 + part] then
            bodies[#bodies + 1] = fields[3 * i - 2 + part]
            bodies[#bodies + 1] = values[3 * i - 2 + part]
          end
        end
        if noted[i] then notes[#notes + 1], notes[#notes + 2] = page[i], noted[i] end
        moved, stored[#stored + 1] = moved + 1, page[i]
      end
    end
    if #scores > 0 then
      redis.call('ZADD', to[1], unpack(scores))
      redis.call('HSET', to[2], unpack(bodies))
      store_notes(to[3], notes)
      copy_headers(from[1], to[1], stored)
    end
    if not copy then delete_messages(from, page) end
  end
  if moved > 0 then redis.pcall('HINCRBY', to[2], 'totalsent', moved) end
end
-- Rename the keys of one queue to those of another. Both keep their attributes.
local function rename_queue(from, to, arrived)
  local kept, pairs_kept = redis.call('HMGET', to[2], unpack(QUEUE_FIELDS)), {}
  local old = redis.call('HMGET', from[2], unpack(QUEUE_FIELDS))
  local back = {}
  for i = 1, #QUEUE_FIELDS do
    if kept[i] then
      pairs_kept[#pairs_kept + 1], pairs_kept[#pairs_kept + 2] = QUEUE_FIELDS[i], kept[i]
    end
    if old[i] then back[#back + 1], back[#back + 2] = QUEUE_FIELDS[i], old[i] end
  end
  redis.call('UNLINK', to[1], to[2], to[3])
  for i = 1, 3 do
    if redis.call('EXISTS', from[i]) == 1 then redis.call('RENAME', from[i], to[i]) end
  end
  rename_headers(from[1], to[1])
  redis.call('HDEL', to[2], unpack(QUEUE_FIELDS))
  if #pairs_kept > 0 then redis.call('HSET', to[2], unpack(pairs_kept)) end
  redis.pcall('HINCRBY', to[2], 'totalsent', arrived)
  if #back > 0 then redis.call('HSET', from[2], unpack(back)) end
end
local function merge_queues(from, to, page)
  local arriving, present = redis.call('ZCARD', from[1]), redis.call('ZCARD', to[1])
  if arriving == 0 then return true end
  if present == 0 then
    rename_queue(from, to, arriving)
  elseif arriving <= page then
    transfer(from, to, redis.call('ZRANGE', from[1], 0, -1))
  elseif present <= page then
    transfer(to, from, redis.call('ZRANGE', to[1], 0, -1))
    rename_queue(from, to, arriving)
  else
    transfer(from, to, redis.call('ZRANGE', from[1], 0, page - 1))
    return false
  end
  return true
end
