-- Numbers as clients store them.
-- number(text, default) -> a stored decimal number; default if absent; nil if it is not a plain number.
--   tonumber() alone would accept 'nan', 'inf' and hexadecimal.
-- whole(text, default) -> a stored count or time, rounded down; default if it is absent or damaged.
local function number(text, default)
  if not text then return default end
  return string.match(text, '^%-?%d+%.?%d*$') and #text < 16 and tonumber(text) or nil
end
local function whole(text, default)
  local stored = number(text)
  return stored and stored >= 0 and math.floor(stored) or default
end
