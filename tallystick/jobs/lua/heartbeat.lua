-- heartbeat: say which work-horses live, and forget those that fell silent.
--
-- KEYS[1] workers   sorted set name -> ms of the last heartbeat
-- ARGV[1] silence   milliseconds after which a name is forgotten
-- ARGV[2..] names
-- Returns the number of names that are left.

local now = now_ms()
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now, ARGV[i]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[1]))
return redis.call('ZCARD', KEYS[1])
