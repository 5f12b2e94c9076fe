-- sweep: take the actions that are due, and put each off so that a lost wake-up is repeated.
--
-- KEYS[1] recoverer  string with a TTL: the token of the active recoverer
-- KEYS[2] due        sorted set
-- ARGV[1] token      of this recoverer
-- ARGV[2] lock ms    how long it stays the active one
-- ARGV[3] limit      most actions to take
-- ARGV[4] again ms   when an action whose wake-up is lost is due again
-- Returns {'busy'} if another recoverer is active, else {'ok', id, score, id, score, ...}: the
-- new score tells one dispatch of an action from the next.

local active = redis.call('GET', KEYS[1])
if active and active ~= ARGV[1] then return {'busy'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local now = now_ms()
local again = string.format('%.0f', now + ARGV[4])
local answer = {'ok'}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[3])) do
  redis.call('ZADD', KEYS[2], again, id)
  answer[#answer + 1] = id
  answer[#answer + 1] = again
end
return answer
