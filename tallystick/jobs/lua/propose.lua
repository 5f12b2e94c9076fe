-- propose: give an idempotency key to a new action, once and for all, and store the action.
--
-- KEYS[1] idempotency  string, absent unless the key is owned
-- KEYS[2] action       hash, must be absent
-- KEYS[3] journal      list, must be absent
-- KEYS[4] index        sorted set of the state of birth
-- KEYS[5] due          sorted set
-- KEYS[6] counters     hash
-- KEYS[7] parent       hash of the action that this one undoes, if it undoes one
-- ARGV[1] id           of the new action
-- ARGV[2] owner mark   "<id> <request digest>", stored under the key
-- ARGV[3] content      canonical JSON
-- ARGV[4] digest       of the content
-- ARGV[5] body         first journal line without `at`, canonical JSON
-- ARGV[6] hash         of that line
-- ARGV[7] state        of birth
-- ARGV[8] due          milliseconds from now until somebody must look
-- ARGV[9] counters     JSON list of fields to bump
-- ARGV[10] identity    random name for this store, kept if it has none yet (counter field
--                      ARGV[11]), by which a restored store is told from another one
-- ARGV[12] guard       JSON {state, token, owner}: the claim that the caller has on the parent
-- ARGV[13] counter field and ARGV[14] text by which the end of history is known
-- Returns {'ok', at}; {'refused', found} if the parent is not the caller's any more, since nobody
-- may undo behind the back of whoever decides about it now; {'owned', mark} if the key has an
-- owner (perhaps this very id, when the reply to an earlier call was lost); {'malformed', key} if a
-- key is of a foreign type.

for at, kind in pairs({[1] = 'string', [4] = 'zset', [5] = 'zset', [6] = 'hash'}) do
  if not is_a(KEYS[at], kind) then return {'malformed', KEYS[at]} end
end
local mark = redis.call('GET', KEYS[1])
if mark then return {'owned', mark} end
for name, value in pairs(cjson.decode(ARGV[12])) do
  local found = redis.call('HGET', KEYS[7], name)
  if found ~= value then return {'refused', found or ''} end
end
if redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 then return {'malformed', KEYS[2]} end
local fields = cjson.decode(ARGV[9])

local at = now_ms()
redis.call('SET', KEYS[1], ARGV[2], 'NX')
redis.call('HSET', KEYS[2], 'content', ARGV[3], 'digest', ARGV[4], 'state', ARGV[7], 'seq', '1',
  'head', ARGV[6], 'at', at, 'token', '0', 'owner', '')
append(KEYS[3], at, ARGV[5])
redis.call('ZADD', KEYS[4], at, ARGV[1])
redis.call('ZADD', KEYS[5], string.format('%.0f', at + ARGV[8]), ARGV[1])
count(KEYS[6], fields)
redis.call('HSETNX', KEYS[6], ARGV[11], ARGV[10])
redis.call('HSET', KEYS[6], ARGV[13], ARGV[14])
return {'ok', at}
