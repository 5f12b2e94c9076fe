-- read: everything about one action, at one instant.
--
-- KEYS[1] action   hash
-- KEYS[2] journal  list
-- KEYS[3] lease    string with a TTL
-- KEYS[4] counters hash
-- KEYS[5] action   hash, and KEYS[6] journal list, of the action whose line was the last seen
-- ARGV[1] moves, ARGV[2] epoch: the counter fields of all of history, and of when it last broke
-- ARGV[3] identity the counter field that names this store
-- ARGV[4] fence    the counter field of the highest fencing token given to a fenced type
-- ARGV[5] seen     JSON {epoch, moves, seq, hash}: the end of history as it was seen
-- Returns {now, remaining lease ms (-2: free), flat action hash, journal lines, moves, epoch,
-- identity, fence, kept (1, or 0 if history was rewound since)}; {now} if there is no such action; {now,
-- 'malformed', key, flat action hash, journal lines} if a key is of a foreign type (what is of the
-- right type is given).

local now = now_ms()
local record = is_a(KEYS[1], 'hash') and redis.call('HGETALL', KEYS[1]) or {}
local journal = is_a(KEYS[2], 'list') and redis.call('LRANGE', KEYS[2], 0, -1) or {}
for at, kind in ipairs({'hash', 'list', 'string', 'hash'}) do
  if not is_a(KEYS[at], kind) then return {now, 'malformed', KEYS[at], record, journal} end
end
if #record == 0 and #journal == 0 then return {now} end
return {now, redis.call('PTTL', KEYS[3]), record, journal,
  redis.call('HGET', KEYS[4], ARGV[1]) or '0', redis.call('HGET', KEYS[4], ARGV[2]) or '0',
  redis.call('HGET', KEYS[4], ARGV[3]) or '', redis.call('HGET', KEYS[4], ARGV[4]) or '0',
  kept(counted(KEYS[4], ARGV[2]), counted(KEYS[4], ARGV[1]), KEYS[5], KEYS[6],
    cjson.decode(ARGV[5]))}
