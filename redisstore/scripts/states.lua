-- What take.lua and settle.lua begin with: the time, and how states are read and
-- written. Format 1:
--   token bucket     "us" or "us num den", the arrival time, and without a blank two
--                    digits, the width: the largest debt of who wrote it is below
--                    2^width us. While processes with a narrower limit run beside
--                    those with a wider one it is "us num den wider": the narrower cut
--                    the debt to what is the largest for them, and the wider, whose
--                    width it then is, go on with theirs
--   fixed window     "start count", and so a calendar's
--   sliding counter  "start current previous"
--   sliding log      a list: time, cost, time, cost, …, the sum of the costs
--   in flight        a sorted set: a holder's ID by the end of its lease; "c" and the
--                    ID by -cost, if that is more than 1; "" by -sum of the costs; "l"
--                    by -us: no lease ends later than that after the last change. Who
--                    gives shorter leases so tells a longer one of another process
--                    from what cannot be under this clock, and leaves it its end
local time, margin = redis.call('TIME'), 2000
local now = time[1] * 1000000 + time[2]
local call, pcall, numbers, byte, match, format = redis.call, redis.pcall, struct.unpack, string.byte, string.match, string.format
local floor, ceil, fmod, min, max = math.floor, math.ceil, math.fmod, math.min, math.max

-- What is wrong with the batch in hand: "state" for one that this version has not
-- written, "skew" where the caller's clock is not near this one.
local bad

-- ttl is how long a key is kept whose state matters until us, in milliseconds.
local function ttl(us) return ceil(max(0, us - now) / 1000) + margin end

-- What keys hold that were read, or will once the script ends, which is when they are
-- written; and how long they then live.
local held, ends = {}, {}

-- read returns a string, nil if there is none.
local function read(key)
  local raw = held[key]
  if raw == nil then
    raw = pcall('GET', key)
    if raw and raw.err then
      bad = 'state'
      return nil
    end
    held[key] = raw
  end
  return raw or nil
end

local function write(key, value, till)
  held[key], ends[key] = value, ttl(till)
end

-- finish writes what is to be written, and returns the lines of the reply as one text.
local function finish(out)
  for key, ms in pairs(ends) do call('SET', key, held[key], 'PX', ms) end
  return table.concat(out, '\n')
end

-- planned returns what stands at p in the plan, which is as in bucket.lua: a key, what is
-- asked of it, and whether it is the last of its batch.
local count = #ARGV
local plan = count > 1 and ARGV[count] or '\1\0\1\0\1'
local function planned(p)
  local k1, k2, a1, a2, flags = byte(plan, p, p + 4)
  return KEYS[k1 + 256 * k2], ARGV[a1 + 256 * a2], flags % 2 == 1
end

-- arrival reads an arrival time over the denominator n, as one of width sees it; then the
-- width that is stored, the wider time if there is one, the microseconds as they are
-- stored, and the text for the reply.
local function arrival(key, n, width)
  local raw = read(key)
  if not raw then return nil end
  local stored = tonumber(string.sub(raw, -2))
  local text = stored and string.sub(raw, 1, -3) or ''
  stored = min(52, stored or 0)
  local us = tonumber(text)
  if us then return us, 0, stored, nil, us, raw end
  local a, b, d = match(text, '^(%d+) (%d+) (%d+)$')
  local wider
  if not a then a, b, d, wider = match(text, '^(%d+) (%d+) (%d+) (%d+)$') end
  if not a then
    bad = 'state'
    return nil
  end
  us = tonumber(a)
  local at, num = us, tonumber(b)
  if tonumber(d) ~= n then at, num = us + 1, 0 end -- never in the client's favour
  if wider then
    wider = tonumber(wider)
    if width >= stored then
      if wider > at then us, at, num = wider, wider, 0 end
      wider = nil
    end
    raw = format('%.0f %.0f %.0f00', at, num, n)
  end
  return at, num, stored, wider, us, raw
end

local function setArrival(key, us, num, n, width, wider)
  local value, till = nil, us
  if wider and wider > us then
    value, till = format('%.0f %.0f %.0f %.0f%02d', us, num, n, wider, width), wider
  elseif num > 0 then
    value = format('%.0f %.0f %.0f%02d', us, num, n, width)
  else
    value = format('%.0f%02d', us, width)
  end
  write(key, value, till)
end

-- beyond is the wider time of a debt that is cut for one of width.
local function beyond(us, stored, width, wider)
  if stored <= width then return nil end
  return min(max(wider or 0, us + 1), now + 2 ^ stored)
end

-- counts reads a start and one count or two.
local function counts(key, pattern)
  local raw = read(key)
  if not raw then return nil end
  local start, a, b = match(raw, pattern)
  if not start then
    bad = 'state'
    return nil
  end
  return tonumber(start), tonumber(a), tonumber(b), raw
end

local ONE, TWO = '^(%-?%d+) (%d+)$', '^(%-?%d+) (%d+) (%d+)$'

local function floorTo(us, period)
  local m = fmod(us, period)
  if m < 0 then m = m + period end
  return us - m
end

-- The views of the windows: start, count, whether it was repaired, its end.

local function fixedView(start, count, period)
  local w = floorTo(now, period)
  if not start or start < w then return w, 0, false, w + period end
  if start <= w + period then return start, count, false, start + period end
  return w + period, count, true, w + 2 * period
end

local function firstView(start, count, period)
  if not start or now >= start + period then return now, 0, false, now + period end
  if start - now <= period then return start, count, false, start + period end
  return now, count, true, now + period
end

-- calendarView is given the edges of the windows around the caller's clock.
local function calendarView(start, count, a, b, c, d, e)
  if now < a or now >= d then
    bad = 'skew'
    return now, 0, false, now
  end
  if now >= c then
    b, c, d = c, d, e
  elseif now < b then
    b, c, d = a, b, c
  end
  if not start or start < b then return b, 0, false, c end
  if start < c then return start, count, false, c end
  return c, count, start > c, d
end

local function counterView(start, cur, prev, period)
  local w = floorTo(now, period)
  if not start or start < w - period then return w, 0, 0, false end
  if start == w - period then return w, 0, cur, false end
  if start <= w + period then return start, cur, prev, false end
  return w, cur, prev, true
end

-- share returns prev * left / period, rounded up: exact, although the product may
-- need 75 bits and a number here has 53.
local function share(prev, left, period)
  if prev * left < 9007199254740992 then
    local product = prev * left
    local quotient = floor(product / period)
    local rest = product - quotient * period
    if rest < 0 then
      quotient, rest = quotient - 1, rest + period
    elseif rest >= period then
      quotient, rest = quotient + 1, rest - period
    end
    if rest > 0 then quotient = quotient + 1 end
    return quotient
  end
  local digits = {}
  for i = 1, 5 do
    digits[i] = fmod(prev, 128)
    prev = (prev - digits[i]) / 128
  end
  local quotient, rest = 0, 0
  for i = 5, 1, -1 do -- rest < period < 2^45, so 128 * rest + 127 * left < 2^53
    local v = rest * 128 + digits[i] * left
    rest = fmod(v, period)
    quotient = quotient * 128 + (v - rest) / period
  end
  if rest > 0 then quotient = quotient + 1 end
  return quotient
end

-- A log in hand: its key, what it holds and how far it has been read.
local function openLog(key, period)
  local tail = pcall('LRANGE', key, -3, -1)
  local log = {key = key, period = period, sum = 0, expired = 0, read = {}, size = 0}
  if tail.err or #tail == 1 or #tail == 2 then
    bad = 'state'
    return log
  end
  if #tail == 0 then return log end
  log.newest, log.sum = tonumber(tail[1]), tonumber(tail[3])
  log.newestCost, log.total = tonumber(tail[2]), log.sum
  if not log.newest or not log.sum or not log.newestCost then
    bad = 'state'
    log.sum = 0
    return log
  end
  log.repaired = log.newest - now > period
  return log
end

-- entry returns the time and cost of the i-th entry, from 0.
local function entry(log, i)
  local got = log.read
  if 2 * i + 2 > #got then
    log.size = min(1000, max(8, 2 * log.size))
    local more = call('LRANGE', log.key, #got, #got + log.size - 1)
    for j = 1, #more do got[#got + 1] = more[j] end
  end
  return tonumber(got[2 * i + 1]), tonumber(got[2 * i + 2])
end

-- dropLog counts what is out of the period and no longer in the sum.
local function dropLog(log)
  while log.sum > 0 do
    local at, cost = entry(log, log.expired)
    if not at or not cost then
      bad, log.sum = 'state', 0
      break
    end
    if at > now - log.period then break end
    log.sum, log.expired = log.sum - cost, log.expired + 1
  end
  if log.sum <= 0 then log.newest = nil end
  if log.newest and log.repaired then log.newest = min(log.newest, now) end
end

-- freeAt returns when so many units of the log have gone, of which it has as many:
-- the time of the entry that leaves last.
local function freeAt(log, units)
  local i = log.expired
  while true do
    local at, cost = entry(log, i)
    if not at or not cost then
      bad = 'state'
      return now
    end
    units, i = units - cost, i + 1
    if units <= 0 then
      if log.repaired then at = min(at, now) end
      return at
    end
  end
end

-- writeLog stores the log as it is seen, with cost more units if there are any.
local function writeLog(log, cost)
  local key, at = log.key, max(now, log.newest or now)
  if not log.newest then
    call('DEL', key)
    if cost > 0 then call('RPUSH', key, at, cost, cost) end
  elseif log.repaired then
    local all, kept, sum = call('LRANGE', key, 2 * log.expired, -2), {}, 0
    for i = 1, #all, 2 do
      local t, c = min(tonumber(all[i]), now), tonumber(all[i + 1])
      if #kept > 0 and kept[#kept - 1] == t then
        kept[#kept] = kept[#kept] + c
      else
        kept[#kept + 1], kept[#kept + 2] = t, c
      end
      sum = sum + c
    end
    if cost > 0 and kept[#kept - 1] == at then
      kept[#kept] = kept[#kept] + cost
    elseif cost > 0 then
      kept[#kept + 1], kept[#kept + 2] = at, cost
    end
    call('DEL', key)
    for i = 1, #kept, 100 do call('RPUSH', key, unpack(kept, i, min(i + 99, #kept))) end
    call('RPUSH', key, sum + cost)
  else
    if log.expired > 0 then call('LPOP', key, 2 * log.expired) end
    if cost > 0 and log.newest == at then
      call('LSET', key, -2, log.newestCost + cost)
      call('LSET', key, -1, log.sum + cost)
    elseif cost > 0 then
      call('LSET', key, -1, at)
      call('RPUSH', key, cost, log.sum + cost)
    else
      call('LSET', key, -1, log.sum)
    end
  end
  log.read, log.size, log.expired, log.repaired = {}, 0, 0, false
  log.sum = log.sum + cost
  if cost > 0 then log.newest = at end
  if log.newest then call('PEXPIRE', key, ttl(log.newest + log.period)) end
end

local function holderCost(h, id)
  local cost = call('ZSCORE', h.key, 'c' .. id)
  return cost and -tonumber(cost) or 1
end

-- lastEnd is when the last lease ends, of those there are.
local function lastEnd(h)
  return min(h.latest, tonumber(call('ZRANGE', h.key, -1, -1, 'WITHSCORES')[2]))
end

-- The holders in hand: those of a key whose leases have not ended. own is the end of a
-- lease given now; what ends after latest cannot be.
local function openHolders(key, period)
  local h = {key = key, period = period, own = now + period, latest = now + period, sum = 0}
  local sum = pcall('ZSCORE', key, '')
  if not sum then return h end
  if type(sum) ~= 'string' then
    bad = 'state'
    return h
  end
  h.longest = -tonumber(call('ZSCORE', key, 'l') or 0)
  h.latest = max(h.own, now + h.longest)
  h.sum, h.ended, h.stored = -tonumber(sum), call('ZRANGEBYSCORE', key, 0, now), true
  for i = 1, #h.ended do h.sum = h.sum - holderCost(h, h.ended[i]) end
  return h
end

-- purge takes away what has ended and cuts what cannot be under this clock.
local function purge(h)
  if not h.stored then return end
  for i = 1, #h.ended do call('ZREM', h.key, h.ended[i], 'c' .. h.ended[i]) end
  local late = call('ZRANGEBYSCORE', h.key, '(' .. format('%.0f', h.latest), '+inf')
  for i = 1, #late do call('ZADD', h.key, h.latest, late[i]) end
end

-- extend makes a lease end a period from now, unless it ends later already.
local function extend(h, id, ends)
  call('ZADD', h.key, max(h.own, min(h.latest, tonumber(ends or 0))), id)
end

-- closeHolders stores the sum, and forgets a longer period once no lease needs it.
local function closeHolders(h)
  if h.sum <= 0 then
    call('DEL', h.key)
    return
  end
  local last = lastEnd(h)
  if last <= h.own and h.longest ~= h.period then
    call('ZADD', h.key, -h.sum, '', -h.period, 'l')
  else
    call('ZADD', h.key, -h.sum, '')
  end
  call('PEXPIRE', h.key, ttl(last))
end
