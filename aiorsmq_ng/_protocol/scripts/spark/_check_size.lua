-- check_size(rows, from, width, maxsize, drop) -> the rows that the queue accepts, place of the first value, of the last,
--   number left out; or nil, {messageTooLong, bytes, maxsize} if one is too long and drop is false.
--   rows: flat list of width values per row, from place from on; the body is the last value of a row.
local function check_size(rows, from, width, maxsize, drop)
  local dropped = 0
  if maxsize >= 0 then
    for at = from + width - 1, #rows, width do
      if #rows[at] > maxsize then
        if not drop then return nil, {'messageTooLong', #rows[at], maxsize} end
        dropped = dropped + 1
      end
    end
  end
  if dropped == 0 then return rows, from, #rows, 0 end
  local kept, size = {}, 0
  for at = from, #rows, width do
    if #rows[at + width - 1] <= maxsize then
      for i = 0, width - 1 do kept[size + 1 + i] = rows[at + i] end
      size = size + width
    end
  end
  return kept, 1, size, dropped
end
