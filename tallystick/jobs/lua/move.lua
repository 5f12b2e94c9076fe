-- move: one guarded step of one action. It is the only script that changes a state.
--
-- KEYS[1] action     hash: content digest state seq head at token owner
-- KEYS[2] journal    list of lines
-- KEYS[3] lease      string with a TTL, holds the owner token of the running attempt
-- KEYS[4] due        sorted set
-- KEYS[5] index      sorted set of the state it leaves
-- KEYS[6] index      sorted set of the state it enters (the same for a note)
-- KEYS[7] counters   hash
-- KEYS[8] outbox     list of alerts
-- KEYS[9] attention  hash id -> counter field
-- KEYS[10] stops     hash of the scopes in which no new intent is allowed
-- KEYS[11] leases    sorted set of the ids that are claimed, by the ms at which the lease ends
-- KEYS[12] marks     hash counter field -> the newest action behind it
-- ARGV[1] id
-- ARGV[2] guard      JSON {state, token, owner, head}: what the caller believes is stored
-- ARGV[3] body       journal line without `at`, canonical JSON
-- ARGV[4] hash       of that line
-- ARGV[5] change     JSON, all but the first eight optional:
--   state, token, owner, seq   what to store, as strings
--   moves, epoch   counter fields of all of history, and of when it last broke
--   last       {counter field, text} by which the end of history is known
--   lease      take | hold | keep | drop | leave   what to do with the lease
--   lease_ms   its length
--   due_ms     milliseconds from now until somebody must look; -1 never
--   bump       counter fields to bump
--   mark, newest   counter fields, and the JSON object (without `at`) to keep for each
--   gate       scopes that must not be stopped for this step
--   fence      counter field of the shared fence, which the token must exceed, and then is
--   conflict   counter field to bump when refused
--   stage, bounds   histogram prefix and bounds (ms) for the time spent in the state it leaves
--   alert      text for the outbox
--   attention  counter field to raise for this action; "" to lower what is raised
-- Returns {'ok', at, remaining lease ms, moves, epoch}; repeated with the same hash it answers the same.
-- Otherwise nothing but the conflict counter has changed:
-- {'missing'}; {'malformed', key}; {'refused', what, found}.

local id, hash = ARGV[1], ARGV[4]
local guard, change = cjson.decode(ARGV[2]), cjson.decode(ARGV[5])

local types = {'hash', 'list', 'string', 'zset', 'zset', 'zset', 'hash', 'list', 'hash', 'hash',
  'zset', 'hash'}
for at, kind in ipairs(types) do
  if not is_a(KEYS[at], kind) then return {'malformed', KEYS[at]} end
end

local stored = redis.call('HMGET', KEYS[1], 'state', 'token', 'owner', 'head', 'at')
if not stored[1] then return {'missing'} end
local holder = redis.call('GET', KEYS[3])
local function done(at)
  return {'ok', at, redis.call('PTTL', KEYS[3]), counted(KEYS[7], change.moves),
    counted(KEYS[7], change.epoch)}
end
if stored[4] == hash then return done(stored[5]) end

local function refuse(what, found)
  add(KEYS[7], change.conflict, 1)
  return {'refused', what, found or ''}
end
if stored[1] ~= guard.state then return refuse('state', stored[1]) end
if stored[2] ~= guard.token then return refuse('token', stored[2]) end
if stored[3] ~= guard.owner then return refuse('owner', stored[3]) end
if stored[4] ~= guard.head then return refuse('head', stored[4]) end
if change.lease == 'take' and holder then return refuse('lease', holder) end
if change.lease == 'hold' and holder ~= guard.owner then return refuse('lease', holder) end
for _, scope in ipairs(change.gate or {}) do
  if redis.call('HEXISTS', KEYS[10], scope) == 1 then return {'refused', 'stopped', scope} end
end
if change.fence then
  local highest = tonumber(redis.call('HGET', KEYS[7], change.fence) or '0') or 0
  if highest >= tonumber(change.token) then return {'refused', 'fence', string.format('%.0f', highest)} end
end

local at = now_ms()
if change.fence then redis.call('HSET', KEYS[7], change.fence, change.token) end
if change.lease == 'take' then
  redis.call('SET', KEYS[3], change.owner, 'NX', 'PX', change.lease_ms)
elseif change.lease == 'hold' or (change.lease == 'keep' and holder == guard.owner) then
  redis.call('PEXPIRE', KEYS[3], change.lease_ms)
elseif change.lease == 'drop' and holder == guard.owner then
  redis.call('DEL', KEYS[3])
end

local entered = redis.call('ZSCORE', KEYS[5], id)
redis.call('HSET', KEYS[1], 'state', change.state, 'token', change.token, 'owner', change.owner,
  'seq', change.seq, 'head', hash, 'at', at)
append(KEYS[2], at, ARGV[3])
if KEYS[5] ~= KEYS[6] then
  redis.call('ZREM', KEYS[5], id)
  redis.call('ZADD', KEYS[6], at, id)
end
if change.due_ms and change.due_ms >= 0 then
  redis.call('ZADD', KEYS[4], string.format('%.0f', at + change.due_ms), id)
elseif change.due_ms then
  redis.call('ZREM', KEYS[4], id)
end
count(KEYS[7], change.bump or {})
remember(KEYS[12], change.mark or {}, at, change.newest)
redis.call('HSET', KEYS[7], change.last[1], change.last[2])
if change.stage and entered then
  local spent, slot = at - entered, 'inf'
  for _, bound in ipairs(change.bounds) do
    if spent <= bound then slot = string.format('%.0f', bound) break end
  end
  add(KEYS[7], change.stage .. '|' .. slot, 1)
  add(KEYS[7], change.stage .. '|sum', string.format('%.0f', spent))
end
if change.alert then redis.call('RPUSH', KEYS[8], change.alert) end
if change.attention then
  local raised = redis.call('HGET', KEYS[9], id)
  if raised ~= change.attention then
    if raised then add(KEYS[7], raised, -1) end
    if change.attention == '' then
      redis.call('HDEL', KEYS[9], id)
    else
      redis.call('HSET', KEYS[9], id, change.attention)
      add(KEYS[7], change.attention, 1)
    end
  end
end
local left = redis.call('PTTL', KEYS[3])
if change.owner == '' or (change.due_ms and change.due_ms < 0) then
  redis.call('ZREM', KEYS[11], id)
elseif change.lease ~= 'leave' and left >= 0 then
  redis.call('ZADD', KEYS[11], string.format('%.0f', at + left), id)
end
return done(at)
