-- release: give up the lease of a dead work-horse, and have its action looked at now.
--
-- KEYS[1] lease   string with a TTL
-- KEYS[2] due     sorted set
-- KEYS[3] leases  sorted set of the claimed ids, by the end of the lease
-- ARGV[1] owner   random token of the dead attempt
-- ARGV[2] id      of the action
-- Returns 1, or 0 if the lease is another's or has run out.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[2], 'XX', now_ms(), ARGV[2])
redis.call('ZADD', KEYS[3], 'XX', now_ms(), ARGV[2])
return 1
