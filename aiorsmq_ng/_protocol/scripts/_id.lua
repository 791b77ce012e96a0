-- Message ids: the send time in microseconds as ten base36 digits, then a suffix of the caller's.
-- Messages of one call get consecutive microseconds, so ids sort in send order.
-- Reads: seconds, micros. Defines: next_us; id_of(suffix) -> the next id.
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
local next_us, upper, upper_text = seconds * 1000000 + micros, -1, ''
local function id_of(suffix)
  local last = next_us % 36
  local high = (next_us - last) / 36
  next_us = next_us + 1
  -- Of consecutive numbers, one in 36 has other digits before the last.
  if high ~= upper then
    upper, upper_text = high, ''
    for _ = 1, 9 do
      local digit = high % 36
      upper_text = string.sub(DIGITS, digit + 1, digit + 1) .. upper_text
      high = (high - digit) / 36
    end
  end
  -- In one step, because every text in between would be kept by the server's Lua, too.
  return upper_text .. string.sub(DIGITS, last + 1, last + 1) .. suffix
end
