-- Shared by every script (the loader puts it in front): time, types, counting, journaling.

-- Redis TIME in whole milliseconds, as text (Lua would print it as 1.7e+12).
local function now_ms()
  local t = redis.call('TIME')
  return string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
end

-- True if the key is absent or of this type. Scripts check before the first write, because a
-- script that fails half-way keeps what it wrote.
local function is_a(key, kind)
  local reply = redis.call('TYPE', key)
  local found = type(reply) == 'table' and reply['ok'] or reply
  return found == 'none' or found == kind
end

-- Add to a counter field. One that somebody made no number begins anew: nothing may fail once a
-- script has written.
local function add(counters, field, amount)
  local reply = redis.pcall('HINCRBY', counters, field, amount)
  if type(reply) == 'table' then redis.call('HSET', counters, field, amount) end
end

local function count(counters, fields)
  for _, field in ipairs(fields) do add(counters, field, 1) end
end

-- Keep, for each counter field, which action was the last that it counted: a JSON object, with
-- `at` put first.
local function remember(marks, fields, at, newest)
  for _, field in ipairs(fields) do
    redis.call('HSET', marks, field, '{"at":' .. at .. ',' .. string.sub(newest, 2))
  end
end

-- Append a journal line: the caller's canonical body with `at` put first, which is where the
-- canonical order wants it.
local function append(journal, at, body)
  redis.call('RPUSH', journal, '{"at":' .. at .. ',' .. string.sub(body, 2))
end

-- A counter field as a number; one that somebody made no number is 0.
local function counted(counters, field)
  return tonumber(redis.call('HGET', counters, field) or '0') or 0
end

-- 1 if history still holds its end as somebody saw it, 0 if it was rewound since. `seen` is
-- {epoch, moves, seq, hash}, where the last two say which line of the action was the last. With a
-- rewind that was found a new epoch began, and then it is over and done with. A line that was altered
-- is still named by the one after it, or as the head; and where record and journal do not agree how
-- many there are, the action is damaged: neither is a rewind.
local function kept(epoch, moves, record, journal, seen)
  if epoch ~= seen.epoch then return epoch > seen.epoch and 1 or 0 end
  if moves < seen.moves then return 0 end
  if seen.hash == '' or not (is_a(record, 'hash') and is_a(journal, 'list')) then return 1 end
  local stored = redis.call('HMGET', record, 'seq', 'head')
  local last = tonumber(stored[1] or '0') or 0
  if last ~= redis.call('LLEN', journal) then return 1 end
  local told = (redis.call('LINDEX', journal, seen.seq - 1) or '')
    .. (redis.call('LINDEX', journal, seen.seq) or (last == seen.seq and stored[2]) or '')
  return string.find(told, seen.hash, 1, true) and 1 or 0
end
