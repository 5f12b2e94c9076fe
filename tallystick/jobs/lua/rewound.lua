-- rewound: a rewind was found and everything that was open is halted, so it is over.
--
-- KEYS[1] counters hash
-- KEYS[2] action   hash, and KEYS[3] journal list, of the action that was halted last
-- ARGV[1] moves, ARGV[2] epoch: the counter fields of all of history, and of when it last broke
-- ARGV[3] done     JSON {epoch, moves, seq, hash}: the end of history after that. A server that
--                  does not hold it is another one by now, on which nothing was halted
-- ARGV[4] the least that the new epoch must be
-- ARGV[5] counter field of the rewinds that were found
-- Returns {'ok', epoch}; {'over', epoch} if somebody was faster; {'gone', epoch} if that end is not
-- there; {'malformed', key} if the counters are of a foreign type.

if not is_a(KEYS[1], 'hash') then return {'malformed', KEYS[1]} end
local done, epoch = cjson.decode(ARGV[3]), counted(KEYS[1], ARGV[2])
if epoch > done.epoch then return {'over', epoch} end
if kept(epoch, counted(KEYS[1], ARGV[1]), KEYS[2], KEYS[3], done) == 0 then
  return {'gone', epoch}
end
epoch = math.max(tonumber(ARGV[4]), tonumber(now_ms()))
redis.call('HSET', KEYS[1], ARGV[2], string.format('%.0f', epoch))
count(KEYS[1], {ARGV[5]})
return {'ok', epoch}
