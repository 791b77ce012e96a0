-- remark(reply, place, values) adds values to the table that ends a receive's reply, which is made if it is missing: at
--   place 1 id, strikes, excused; at 2 id, body, rc, fr, why of what was dead-lettered; at 3 id, headers.
local function remark(reply, place, values)
  if #values == 0 then return end
  local last = reply[#reply]
  if type(last) ~= 'table' then
    last = {{}, {}, {}}
    reply[#reply + 1] = last
  end
  local list = last[place]
  for i = 1, #values do list[#list + 1] = values[i] end
end
