-- Message ids: the send time in microseconds as ten base36 digits, then a random suffix that the caller chose.
-- A call gives its messages consecutive microseconds, so ids sort in send order.
-- id_of(us, suffix) -> the id of a message sent at us (epoch microseconds).
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
-- Cache of id_of: 36 consecutive numbers have the same nine digits before the last.
local cached_upper, cached_text = -1, ''
local function id_of(us, suffix)
  local last = us % 36
  local upper = (us - last) / 36
  if upper ~= cached_upper then
    cached_upper, cached_text = upper, ''
    for _ = 1, 9 do
      local digit = upper % 36
      cached_text = string.sub(DIGITS, digit + 1, digit + 1) .. cached_text
      upper = (upper - digit) / 36
    end
  end
  -- One concatenation, because the server's Lua would intern every intermediate text.
  return cached_text .. string.sub(DIGITS, last + 1, last + 1) .. suffix
end
