-- inspect: everything that is kept of one action, wherever it is kept, at one instant.
--
-- KEYS[1] action     hash
-- KEYS[2] journal    list
-- KEYS[3] due        sorted set
-- KEYS[4] leases     sorted set
-- KEYS[5] attention  hash
-- KEYS[6..] indexes of all states, each a sorted set
-- ARGV[1] id
-- Returns {now, malformed key or '', flat action hash, journal lines, 1 if it is due at some time,
-- 1 if it is in the leases, attention or '', number of an index that holds it, ...}; what is of a
-- foreign type counts as empty.

local now, id = now_ms(), ARGV[1]
local malformed = ''
local function read(key, kind, command, ...)
  if is_a(key, kind) then return redis.call(command, key, ...) end
  malformed = key
  return false
end
local record = read(KEYS[1], 'hash', 'HGETALL') or {}
local journal = read(KEYS[2], 'list', 'LRANGE', 0, -1) or {}
local due = read(KEYS[3], 'zset', 'ZSCORE', id) and 1 or 0
local claimed = read(KEYS[4], 'zset', 'ZSCORE', id) and 1 or 0
local attention = read(KEYS[5], 'hash', 'HGET', id) or ''
local answer = {now, malformed, record, journal, due, claimed, attention}
for i = 6, #KEYS do
  if read(KEYS[i], 'zset', 'ZSCORE', id) then answer[#answer + 1] = i - 5 end
end
answer[2] = malformed
return answer
