"""What one node of Redis does at once for a partition, in Lua.

Behind each script: its keys; its arguments. `redis.call` fails a script as a whole before it writes when
Redis has no room, so that a script does all of it or nothing.
"""

from __future__ import annotations

ADD = """
local at, count = 3, 0
while at <= #ARGV do
    local fields = tonumber(ARGV[at])
    redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + fields))
    at, count = at + fields + 1, count + 1
end
redis.call('HINCRBY', KEYS[2], 'published', count)
if redis.call('DEL', KEYS[3]) == 1 then redis.call('PUBLISH', ARGV[1], ARGV[2]) end
return count
"""
# stream, state, asleep; channel, partition, then of each message the number of its fields and they

TAKE = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return false
end
local place, handled = 'at:' .. ARGV[3], 'handled:' .. ARGV[3]
if redis.call('HSETNX', KEYS[2], place, '0-0') == 1 then
    local published = tonumber(redis.call('HGET', KEYS[2], 'published') or '0')
    redis.call('HSET', KEYS[2], handled, string.format('%.0f', published - redis.call('XLEN', KEYS[3])))
end
return redis.call('HMGET', KEYS[2], place, handled)
"""
# owner, state, stream; token, milliseconds, group

READ = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
local found, after, left, room = {}, ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
while left > 0 and room > 0 do
    local part = redis.call('XRANGE', KEYS[2], '(' .. after, '+', 'COUNT', math.min(left, 16))
    if #part == 0 then break end
    for _, entry in ipairs(part) do
        if room <= 0 then break end
        for _, field in ipairs(entry[2]) do room = room - #field end
        found[#found + 1], after, left = entry, entry[1], left - 1
    end
end
if #found == 0 and redis.call('EXISTS', KEYS[3]) == 0 then redis.call('SET', KEYS[3], 1) end
return found
"""
# owner, stream, asleep; token, after, most messages, about how many bytes

COMMIT = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], 'at:' .. ARGV[2], ARGV[3], 'handled:' .. ARGV[2], ARGV[4])
local state, low_time, low_number = redis.call('HGETALL', KEYS[2]), nil, nil
for i = 1, #state, 2 do
    if string.sub(state[i], 1, 3) == 'at:' then
        local time, number = string.match(state[i + 1], '^(%d+)-(%d+)$')
        time, number = tonumber(time), tonumber(number)
        if not low_time or time < low_time or (time == low_time and number < low_number) then
            low_time, low_number = time, number
        end
    end
end
redis.call('XTRIM', KEYS[3], 'MINID', '=', string.format('%.0f-%.0f', low_time, low_number + 1))
return 1
"""
# owner, state, stream; token, group, offset, how many are handled

RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
# owner; token, milliseconds

GIVE_BACK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
# owner; token

LIVE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local gone = redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now))
local new = redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
if gone + new > 0 then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""
# members; this one, milliseconds, channel, the word for a change among them
