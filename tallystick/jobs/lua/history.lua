-- history: how far it goes, and whether it still holds its end as somebody saw it.
--
-- KEYS[1] counters hash
-- KEYS[2] action   hash, and KEYS[3] journal list, of the action whose line was the last seen
-- ARGV[1] moves, ARGV[2] epoch: the counter fields of all of history, and of when it last broke
-- ARGV[3] seen     JSON {epoch, moves, seq, hash}: the end of history as it was seen
-- ARGV[4..] counter fields to give
-- Returns {kept, value, value, ...}: kept is 1 or 0, a field that is absent is ''; {'malformed',
-- key} if the counters are of a foreign type.

if not is_a(KEYS[1], 'hash') then return {'malformed', KEYS[1]} end
local epoch, moves = counted(KEYS[1], ARGV[2]), counted(KEYS[1], ARGV[1])
local answer = {kept(epoch, moves, KEYS[2], KEYS[3], cjson.decode(ARGV[3]))}
for at = 4, #ARGV do answer[#answer + 1] = redis.call('HGET', KEYS[1], ARGV[at]) or '' end
return answer
