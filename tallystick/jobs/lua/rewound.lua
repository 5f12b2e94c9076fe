-- rewound: a rewind was found and everything that was open is halted, so it is over.
--
-- KEYS[1] counters hash
-- ARGV[1] counter field of the epoch, which begins anew now
-- ARGV[2] the epoch in which it was found, and ARGV[3] the least that the new one must be
-- ARGV[4] counter field of the rewinds that were found
-- Returns {'ok', epoch}, or {'over', epoch} if somebody was faster; {'malformed', key} if the
-- counters are of a foreign type.

if not is_a(KEYS[1], 'hash') then return {'malformed', KEYS[1]} end
local epoch = counted(KEYS[1], ARGV[1])
if epoch ~= tonumber(ARGV[2]) then return {'over', epoch} end
epoch = math.max(tonumber(ARGV[3]), tonumber(now_ms()))
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', epoch))
count(KEYS[1], {ARGV[4]})
return {'ok', epoch}
