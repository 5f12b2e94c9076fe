-- renew: lengthen a lease, if it is still held by this attempt.
--
-- KEYS[1] lease   string with a TTL
-- KEYS[2] due     sorted set
-- KEYS[3] leases  sorted set of the claimed ids, by the end of the lease
-- ARGV[1] owner   random token of the attempt
-- ARGV[2] id      of the action
-- ARGV[3] length  milliseconds
-- Returns 1, or 0 if the lease is another's or has run out.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local ends = string.format('%.0f', now_ms() + ARGV[3])
redis.call('ZADD', KEYS[2], ends, ARGV[2])
redis.call('ZADD', KEYS[3], 'XX', ends, ARGV[2])
return 1
