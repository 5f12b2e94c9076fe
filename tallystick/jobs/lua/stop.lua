-- stop: close or open the gate that every new intent passes, and write it down.
--
-- KEYS[1] stops       hash scope -> the line that closed it
-- KEYS[2] operations  list of lines, append-only
-- ARGV[1] scope       an action name, or * for all
-- ARGV[2] mode        close | open | note (nothing but the line)
-- ARGV[3] last        the last line of the operations journal, as the caller knows it; may be ''
-- ARGV[4] body        the next line without `at`, canonical JSON
-- Returns {'ok', at}; {'refused', last line} if somebody wrote meanwhile; {'malformed', key}.

if not is_a(KEYS[1], 'hash') then return {'malformed', KEYS[1]} end
if not is_a(KEYS[2], 'list') then return {'malformed', KEYS[2]} end
local last = redis.call('LINDEX', KEYS[2], -1) or ''
if last ~= ARGV[3] then return {'refused', last} end

local at = now_ms()
append(KEYS[2], at, ARGV[4])
if ARGV[2] == 'close' then
  redis.call('HSET', KEYS[1], ARGV[1], redis.call('LINDEX', KEYS[2], -1))
elseif ARGV[2] == 'open' then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return {'ok', at}
