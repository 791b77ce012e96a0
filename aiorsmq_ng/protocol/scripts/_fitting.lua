-- Reads: maxsize. Defines: fitting(rows, from, drop) -> rows that the queue takes, place of the first, of
--   the last, number left out; or nil, {messageTooLong, bytes, maxsize} if one is too long and drop is
--   false. rows: flat list of id, delay, body.
local function fitting(rows, from, drop)
  local dropped = 0
  if maxsize >= 0 then
    for at = from, #rows, 3 do
      if #rows[at + 2] > maxsize then
        if not drop then return nil, {'messageTooLong', #rows[at + 2], maxsize} end
        dropped = dropped + 1
      end
    end
  end
  if dropped == 0 then return rows, from, #rows, 0 end
  local kept, size = {}, 0
  for at = from, #rows, 3 do
    if #rows[at + 2] <= maxsize then
      kept[size + 1], kept[size + 2], kept[size + 3] = rows[at], rows[at + 1], rows[at + 2]
      size = size + 3
    end
  end
  return kept, 1, size, dropped
end
