-- The server's clock. A script reads it once, because TIME advances while a script runs.
-- server_time() -> now (epoch ms, rounded down), seconds, microseconds of that second, and TIME's own reply
--   (both as text).
local function server_time()
  local time = redis.call('TIME')
  local seconds, micros = tonumber(time[1]), tonumber(time[2])
  return seconds * 1000 + math.floor(micros / 1000), seconds, micros, time
end
