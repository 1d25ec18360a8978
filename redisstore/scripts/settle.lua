-- Corrects charges, and ends and renews leases. Its calls are as the batches of
-- bucket.lua, with "-" for a mode. A call may
-- begin with the mark of its batch, kind m: where that stands the rest is not done
-- again. The kinds in lower case give back what was taken too much, those in upper
-- case charge the rest. The reply is lines: the time, then for each call 1, 0 if it
-- was done before, or what is wrong; then 1 or 0 for each lease that was to be
-- renewed.
local change = {}
local renewed

function change.b(key, arg)
  local n, bu, bc, ku, kc, charged, at, own = numbers('<I4dI4dI4ddI4', arg, 3)
  local u, c, width, wider, stored = arrival(key, n, own)
  if not u or now < charged then return end
  -- Those who queued behind a held request have been told when to leave, so their
  -- units do not come back: as if they had refilled.
  if at > 0 then charged = min(charged, now - (stored - at)) end
  local ru, rc = now - charged - ku, -kc
  if rc < 0 then ru, rc = ru - 1, rc + n end
  if ru >= 0 then
    bu, bc = bu - ru, bc - rc
    if bc < 0 then bu, bc = bu - 1, bc + n end
  end
  if bu < 0 or (bu == 0 and bc == 0) then return end
  u, c = u - bu, c - bc
  if c < 0 then u, c = u - 1, c + n end
  setArrival(key, u, c, n, width, wider)
end

function change.B(key, arg)
  local n, iu, ic, mu, mc, width = numbers('<I4dI4dI4I4', arg, 3)
  local u, c, stored, wider = arrival(key, n, width)
  local latest = now + mu
  if not u or u < now then u, c = now, 0 end
  if u > latest then wider = beyond(u, stored, width, wider) end
  if wider then width, wider = stored, wider + iu + 1 end
  u, c = u + iu, c + ic
  if c >= n then u, c = u + 1, c - n end
  if u > latest or (u == latest and c > mc) then u, c = latest, mc end
  setArrival(key, u, c, n, width, wider)
end

-- A window loses what was charged in it, as long as it is the one that is kept.
function change.f(key, arg)
  local back, charged, from, ends = numbers('<dddd', arg, 3)
  local start, count = counts(key, ONE)
  if not start then return end
  if ends == 0 then ends = start + from else if start ~= from then return end end
  if charged < start or charged >= ends or now >= ends then return end
  write(key, format('%.0f %.0f', start, max(0, count - back)), ends)
end

local function most(count, rest, limit) return count + min(rest, max(0, 2 * limit - count)) end

local function up(seen)
  return function(key, arg)
    local rest, limit, a, b, c, d, e = numbers('<ddddddd', arg, 3)
    local start, count = counts(key, ONE)
    local ends
    local _
    start, count, _, ends = seen(start, count, a, b, c, d, e)
    if bad then return end
    write(key, format('%.0f %.0f', start, most(count, rest, limit)), ends)
  end
end

change.F, change.G, change.C = up(fixedView), up(firstView), up(calendarView)

function change.s(key, arg)
  local back, charged, period = numbers('<ddd', arg, 3)
  local start, cur, prev = counts(key, TWO)
  local bucket = floorTo(charged, period)
  if not start or bucket < floorTo(now, period) - period then return end
  if bucket == start then
    cur = max(0, cur - back)
  elseif bucket == start - period then
    prev = max(0, prev - back)
  else
    return
  end
  write(key, format('%.0f %.0f %.0f', start, cur, prev), start + 2 * period)
end

function change.S(key, arg)
  local rest, limit, period = numbers('<ddd', arg, 3)
  local start, cur, prev = counts(key, TWO)
  start, cur, prev = counterView(start, cur, prev, period)
  if bad then return end
  write(key, format('%.0f %.0f %.0f', start, most(cur, rest, limit), prev), start + 2 * period)
end

function change.l(key, arg)
  local back, at, period = numbers('<ddd', arg, 3)
  local log = openLog(key, period)
  if log.sum == 0 or at <= now - period then return end
  local i = call('LPOS', key, format('%.0f', at))
  if not i or i % 2 == 1 then return end
  local cost = tonumber(call('LINDEX', key, i + 1))
  back = min(back, cost)
  if log.total - back <= 0 then
    call('DEL', key)
    return
  end
  call('LSET', key, -1, log.total - back)
  if cost > back then
    call('LSET', key, i + 1, cost - back)
    return
  end
  call('LSET', key, i, '')
  call('LSET', key, i + 1, '')
  call('LREM', key, 2, '')
end

function change.L(key, arg)
  local rest, period = numbers('<dd', arg, 3)
  local log = openLog(key, period)
  dropLog(log)
  if not bad then writeLog(log, rest) end
end

-- A lease ends with its ID; that of another who has the place by now does not.
function change.n(key, arg)
  local period = numbers('<d', arg, 3)
  local h, id = openHolders(key, period), string.sub(arg, 11)
  if not h.stored or bad then return end
  purge(h)
  local ends = call('ZSCORE', key, id)
  if ends and tonumber(ends) > now then
    h.sum = h.sum - holderCost(h, id)
    call('ZREM', key, id, 'c' .. id)
  end
  closeHolders(h)
end

function change.N(key, arg)
  local period = numbers('<d', arg, 3)
  local h, id = openHolders(key, period), string.sub(arg, 11)
  if bad then return end
  purge(h)
  local ends = h.stored and call('ZSCORE', key, id)
  local holds = ends and tonumber(ends) > now
  if holds then extend(h, id, ends) end
  if h.stored then closeHolders(h) end
  renewed[#renewed + 1] = holds and '1' or '0'
end

local out = {time[1] .. ' ' .. time[2]}
local done = false
renewed = {}
for p = 1, #plan, 5 do
  local key, arg, last = planned(p)
  local kind = string.sub(arg, 1, 1)
  if kind == 'm' then
    done = not call('SET', key, '1', 'NX', 'PX', (numbers('<d', arg, 3)))
  elseif not done then
    change[kind](key, arg)
  end
  if last then
    out[#out + 1] = bad or (done and '0' or '1')
    for j = 1, bad and 0 or #renewed do out[#out + 1] = renewed[j] end
    done, bad, renewed = false, nil, {}
  end
end
return finish(out)
