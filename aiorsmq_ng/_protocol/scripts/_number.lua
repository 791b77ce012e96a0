-- Defines: number(text, default) -> a stored decimal number; default if absent; nil if it is no
-- plain number. tonumber() alone would let in 'nan', 'inf' and hexadecimal. whole(text, default) -> a
-- stored number of deliveries, or a time; default also if it is damaged: no number, or below 0.
local function number(text, default)
  if not text then return default end
  return string.match(text, '^%-?%d+%.?%d*$') and #text < 16 and tonumber(text) or nil
end
local function whole(text, default)
  local stored = number(text)
  return stored and stored >= 0 and math.floor(stored) or default
end
