-- quarantine: close an action whose seals do not match. It trusts nothing that is stored, so it
-- has one guard only: the record is still the one that was judged.
--
-- KEYS[1] action     KEYS[2] journal    KEYS[3] lease     KEYS[4] due
-- KEYS[5] counters   KEYS[6] outbox     KEYS[7] attention
-- KEYS[8] index of the corrupt state
-- KEYS[9] leases     KEYS[10] marks     KEYS[11..] indexes of all other states
-- ARGV[1] id
-- ARGV[2] stored state and ARGV[3] stored head, as judged
-- ARGV[4] body of the journal line and ARGV[5] its hash
-- ARGV[6] state to store and ARGV[7] its sequence number
-- ARGV[8] counters   JSON list of fields to bump
-- ARGV[9] alert      text for the outbox
-- ARGV[10] attention counter field to raise
-- ARGV[11] token to store, the last that can be read
-- ARGV[12] marks     JSON list of counter fields and ARGV[13] the JSON object to keep for each
-- ARGV[14] counter field and ARGV[15] text by which the end of history is known
-- Returns {'ok', at}; repeated it answers the same; {'changed'} if the record is another by now;
-- {'malformed', key} if a key that all actions share is of a foreign type.

local state = redis.pcall('HGET', KEYS[1], 'state')
local head = redis.pcall('HGET', KEYS[1], 'head')
if type(state) == 'table' then state = '' end
if type(head) == 'table' then head = '' end
if head == ARGV[5] then return {'ok', redis.call('HGET', KEYS[1], 'at')} end
local shared = {[4] = 'zset', [5] = 'hash', [6] = 'list', [7] = 'hash', [8] = 'zset',
  [9] = 'zset', [10] = 'hash'}
for at, kind in pairs(shared) do
  if not is_a(KEYS[at], kind) then return {'malformed', KEYS[at]} end
end
if (state or '') ~= ARGV[2] or (head or '') ~= ARGV[3] then return {'changed'} end
local fields, marked = cjson.decode(ARGV[8]), cjson.decode(ARGV[12])

local at = now_ms()
if not is_a(KEYS[1], 'hash') then redis.call('RENAME', KEYS[1], KEYS[1] .. ':foreign') end
if not is_a(KEYS[2], 'list') then redis.call('RENAME', KEYS[2], KEYS[2] .. ':foreign') end
redis.call('HSET', KEYS[1], 'state', ARGV[6], 'seq', ARGV[7], 'head', ARGV[5], 'at', at,
  'token', ARGV[11], 'owner', '')
append(KEYS[2], at, ARGV[4])
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[9], ARGV[1])
for i = 11, #KEYS do redis.call('ZREM', KEYS[i], ARGV[1]) end
redis.call('ZADD', KEYS[8], at, ARGV[1])
count(KEYS[5], fields)
remember(KEYS[10], marked, at, ARGV[13])
redis.call('HSET', KEYS[5], ARGV[14], ARGV[15])
redis.call('RPUSH', KEYS[6], ARGV[9])
local raised = redis.call('HGET', KEYS[7], ARGV[1])
if raised then add(KEYS[5], raised, -1) end
redis.call('HSET', KEYS[7], ARGV[1], ARGV[10])
add(KEYS[5], ARGV[10], 1)
return {'ok', at}
