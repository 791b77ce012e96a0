-- The server's clock, read once per script because TIME advances while a script runs.
-- Defines: seconds (number), micros (number), now (number, epoch ms, rounded down).
local time = redis.call('TIME')
local seconds, micros = tonumber(time[1]), tonumber(time[2])
local now = seconds * 1000 + math.floor(micros / 1000)
