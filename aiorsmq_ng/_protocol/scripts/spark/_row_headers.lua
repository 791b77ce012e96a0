-- Headers of rows of a bulk job. They follow the first value of a row, which is an id or the random part of one. Headers are a
-- JSON object, so they begin and end with braces; no id has any. Rows without headers have no more than that value.
-- split_headers(value) -> the value without headers, headers or nil.
-- refused_row_headers(zset, rows, from, upto) -> {headersRefused, error of the server} if a row has headers and they cannot be
--   stored, else nil. rows: flat list of three values per row.
-- @include store_headers
local function split_headers(value)
  if string.byte(value, -1) ~= 125 then return value end
  return string.match(value, '^([^{]*)(.*)$')
end
local function refused_row_headers(zset, rows, from, upto)
  for at = from, upto, 3 do
    if string.byte(rows[at], -1) == 125 then return refused_headers(zset) end
  end
end
