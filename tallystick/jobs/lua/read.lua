-- read: everything about one action, at one instant.
--
-- KEYS[1] action   hash
-- KEYS[2] journal  list
-- KEYS[3] lease    string with a TTL
-- KEYS[4] counters hash
-- ARGV[1] moves    the counter field that counts all of history
-- ARGV[2] identity the counter field that names this store
-- ARGV[3] fence    the counter field of the highest fencing token given to a fenced type
-- Returns {now, remaining lease ms (-2: free), flat action hash, journal lines, moves, identity,
-- fence};
-- {now} if there is no such action; {now, 'malformed', key} if a key is of a foreign type.

local now = now_ms()
for at, kind in ipairs({'hash', 'list', 'string', 'hash'}) do
  if not is_a(KEYS[at], kind) then return {now, 'malformed', KEYS[at]} end
end
local record = redis.call('HGETALL', KEYS[1])
if #record == 0 then return {now} end
return {now, redis.call('PTTL', KEYS[3]), record, redis.call('LRANGE', KEYS[2], 0, -1),
  redis.call('HGET', KEYS[4], ARGV[1]) or '0', redis.call('HGET', KEYS[4], ARGV[2]) or '',
  redis.call('HGET', KEYS[4], ARGV[3]) or '0'}
