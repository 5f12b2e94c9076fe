-- history: how far it goes, and whether it still holds the last line that somebody saw.
--
-- KEYS[1] counters hash
-- KEYS[2] action   hash, and KEYS[3] journal list, of the action whose line was the last seen
-- ARGV[1] seq and ARGV[2] hash of that line; '' if there was none
-- ARGV[3..] counter fields to give
-- Returns {kept, value, value, ...}: kept is 1 or 0, a field that is absent is ''; {'malformed',
-- key} if the counters are of a foreign type.

if not is_a(KEYS[1], 'hash') then return {'malformed', KEYS[1]} end
local answer = {ARGV[1] == '' and 1 or kept(KEYS[2], KEYS[3], ARGV[1], ARGV[2])}
for at = 3, #ARGV do answer[#answer + 1] = redis.call('HGET', KEYS[1], ARGV[at]) or '' end
return answer
