-- release: give up the lease of a dead work-horse, and have its action looked at now.
--
-- KEYS[1] lease   string with a TTL
-- KEYS[2] due     sorted set
-- ARGV[1] owner   random token of the dead attempt
-- ARGV[2] id      of the action
-- Returns 1, or 0 if the lease is another's or has run out.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if redis.call('ZSCORE', KEYS[2], ARGV[2]) then redis.call('ZADD', KEYS[2], now_ms(), ARGV[2]) end
return 1
