-- Defines: number(text, default) -> a stored decimal number; default if absent; nil if it is no
-- plain number. tonumber() alone would let in 'nan', 'inf' and hexadecimal.
local function number(text, default)
  if not text then return default end
  return string.match(text, '^%-?%d+%.?%d*$') and #text < 16 and tonumber(text) or nil
end
