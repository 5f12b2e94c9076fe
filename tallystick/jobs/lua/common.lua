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

-- 1 unless a journal line that was seen (its number and hash) is no longer there, although the
-- record knows nothing of it either: then history was rewound, and the record is not just damaged.
local function kept(record, journal, seq, hash)
  if not (is_a(record, 'hash') and is_a(journal, 'list')) then return 1 end
  local line = redis.call('LINDEX', journal, seq - 1)
  if line then return string.find(line, hash, 1, true) and 1 or 0 end
  local last = tonumber(redis.call('HGET', record, 'seq') or '0') or 0
  return last >= tonumber(seq) and 1 or 0
end
