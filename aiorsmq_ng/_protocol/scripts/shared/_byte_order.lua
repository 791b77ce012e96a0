-- sorts_before(a, b) -> true if the server orders member a before member b of the same score: by bytes.
--   Lua's own < depends on the locale of the server.
local function sorts_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
